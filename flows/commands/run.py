"""A run from the shell: Prefect in this process, one live display, a summary at the end."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from rich.console import Console

from flows.prefect_server import LocalServer
from pipeline_lib.config import ConfigError, RunConfig, config_hash
from pipeline_lib.config.extras import missing_extras
from warehouse import Warehouse

STATUS = "SELECT status FROM runs WHERE run_id = $1 AND config_hash = $2"


def run_curriculum(config: RunConfig, console: Console, messages: Console) -> None:
    """Do what is left of the run and show what came of it. Raises ConfigError where a package is missing."""
    if problems := missing_extras(config):
        raise ConfigError("\n".join(problems))
    server = LocalServer(Path(config.root))
    warehouse = Warehouse(Path(config.root))
    if _recorded_complete(warehouse, config) and _nothing_left(config):
        console.print(f"Run {config.name} is complete: every step is recorded, nothing was done.")
    else:
        _run(config, server, messages)
    from flows.commands.summary import print_run_summary

    print_run_summary(console, warehouse, config.name)


def _run(config: RunConfig, server: LocalServer, messages: Console) -> None:
    server.start()
    # The imports below take as long as the server's start: both at once. The steps import torch only when they work.
    import_module("pipeline_lib.policy.materialise")
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.curriculum import curriculum
    from flows.display import make_reporter
    from tasks.progress import use_reporter

    with make_reporter(messages) as reporter, use_reporter(reporter):
        server.wait()
        # Heartbeats are for a server that outlives this process; each flow would wait a second for its own.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            try:
                curriculum(config)
            except Exception as error:
                server.raise_if_gone(error)
                raise


def _recorded_complete(warehouse: Warehouse, config: RunConfig) -> bool:
    if not warehouse.path.exists():
        return False
    rows = warehouse.query(STATUS, [config.name, config_hash(config)]).to_pylist()
    return bool(rows) and rows[0]["status"] == "completed"


def _nothing_left(config: RunConfig) -> bool:
    from flows.chain import first_pending

    return first_pending(config) is None
