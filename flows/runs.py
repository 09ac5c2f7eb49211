"""The warehouse's record of a run, and what the command line tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa

from flows.chain import places
from pipeline_lib.config import RunConfig, config_hash
from warehouse import Warehouse

Status = Literal["running", "waiting", "failed", "completed"]
"""waiting: nothing goes on, and steps are left to do."""


@contextmanager
def recording(config: RunConfig, ending: Status) -> Iterator[None]:
    """Keep the run's row while a flow works on it: running, then `ending`, or failed where it raises.

    A flow that is part of another leaves that to it.
    """
    from prefect import runtime

    if runtime.flow_run.parent_flow_run_id is not None:
        yield
        return
    record_run(config, "running")
    try:
        yield
    except BaseException:
        record_run(config, "failed")
        raise
    record_run(config, ending)


def record_if_new(config: RunConfig) -> None:
    """Write the run's row where it has none yet."""
    if not Warehouse(Path(config.root)).query("SELECT 1 FROM runs WHERE run_id = $1", [config.name]).num_rows:
        record_run(config, "waiting")


def record_run(config: RunConfig, status: Status) -> None:
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


def config_of(warehouse: Warehouse, run_id: str) -> RunConfig:
    """The config under which a run that is known was last worked on, its root where the warehouse is now."""
    [row] = warehouse.snapshot_query("SELECT config FROM runs WHERE run_id = $1", [run_id]).to_pylist()
    return RunConfig.model_validate_json(row["config"]).model_copy(update={"root": str(warehouse.root)})
