"""Which root a command works on, when no config names one."""

from __future__ import annotations

import os
from pathlib import Path

from warehouse import WarehouseError


def find_root(given: Path | None) -> Path:
    """`given`, else $RLSIFT_ROOT, else ./runs; it must hold a published warehouse.

    Raises WarehouseError naming the place that was looked at.
    """
    from_environment = os.environ.get("RLSIFT_ROOT")
    root = given or Path(from_environment or "runs")
    if not (root / "warehouse.snapshot.duckdb").exists():
        where = "--root" if given else "$RLSIFT_ROOT" if from_environment else "the working directory's runs/"
        raise WarehouseError(
            f"{root.absolute()} ({where}) holds no warehouse; give --root DIR, the `root` of a run's config"
        )
    return root.absolute()
