"""Which root a command works on, when no config names one."""

from __future__ import annotations

import os
from pathlib import Path

from warehouse import WarehouseError


def named_root(given: Path | None) -> Path:
    """`given`, else $RLSIFT_ROOT, else ./runs, whatever is there."""
    return (given or Path(os.environ.get("RLSIFT_ROOT") or "runs")).absolute()


def find_root(given: Path | None) -> Path:
    """As `named_root`; it must hold a warehouse, or a snapshot of one.

    Raises WarehouseError naming the place that was looked at.
    """
    root = named_root(given)
    if not any((root / name).exists() for name in ("warehouse.duckdb", "warehouse.snapshot.duckdb")):
        from_environment = os.environ.get("RLSIFT_ROOT")
        where = "--root" if given else "$RLSIFT_ROOT" if from_environment else "the working directory's runs/"
        raise WarehouseError(f"{root} ({where}) holds no warehouse; give --root DIR, the `root` of a run's config")
    return root
