"""The warehouse's record of a run, and what the command line tells of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from flows.chain import places
from pipeline_lib.config import RunConfig, config_hash
from warehouse import Warehouse


def record_run(config: RunConfig, status: str) -> None:
    """Write the run's row and publish. A run is known by its name; a changed config replaces the old one.

    Steps that the run took under an older config, at stages or of kinds that it no longer has, are its own no longer.
    """
    warehouse = Warehouse(Path(config.root))
    now = datetime.now(UTC)
    created = warehouse.query("SELECT created_at FROM runs WHERE run_id = $1", [config.name])
    row = {
        "run_id": config.name,
        "config": config.model_dump_json(),
        "config_hash": config_hash(config),
        "stages": config.stages,
        "status": status,
        "created_at": created["created_at"][0].as_py() if created.num_rows else now,
        "updated_at": now,
    }
    warehouse.write({"runs": pa.Table.from_pylist([row])})
    warehouse.keep_run_steps(config.name, places(config))
    warehouse.publish()
