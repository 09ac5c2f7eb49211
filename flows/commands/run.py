"""A run from the shell: Prefect in this process, one live display, a summary at the end."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from flows.prefect_server import configure_prefect, start_server
from flows.commands.summary import print_run_summary
from pipeline_lib.config import RunConfig, config_hash
from warehouse import Warehouse

STATUS = "SELECT status, config_hash FROM runs WHERE run_id = $1"


def run_curriculum(config: RunConfig, console: Console, messages: Console) -> None:
    """Do what is left of the run and show what came of it."""
    configure_prefect(Path(config.root))
    warehouse = Warehouse(Path(config.root))
    if _recorded_status(warehouse, config) == "completed" and _nothing_left(config):
        console.print(f"Run {config.name} is complete: every step is recorded, nothing was done.")
        print_run_summary(console, warehouse, config.name)
        return
    wait_for_server = start_server()

    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.curriculum import curriculum
    from flows.display import make_reporter
    from tasks.progress import use_reporter

    with make_reporter(messages) as reporter, use_reporter(reporter):
        wait_for_server()
        # Heartbeats are for a server that outlives this process; each flow would wait a second for its own.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            curriculum(config)
    print_run_summary(console, warehouse, config.name)


def _recorded_status(warehouse: Warehouse, config: RunConfig) -> str | None:
    if not warehouse.path.exists():
        return None
    rows = warehouse.query(STATUS, [config.name]).to_pylist()
    if not rows:
        return None
    return rows[0]["status"] if rows[0]["config_hash"] == config_hash(config) else "other config"


def _nothing_left(config: RunConfig) -> bool:
    from flows.chain import first_pending

    return first_pending(config) is None
