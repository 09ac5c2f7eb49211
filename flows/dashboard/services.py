"""The processes of a dashboard: a Prefect server with its pages, and a worker for each work pool."""

from __future__ import annotations

from pathlib import Path

from flows.child_process import Child
from flows.prefect_server import OFFLINE, Server

POOLS = {"cpu": 2, "gpu": 1}
"""Work pools and how many flow runs each lets run at once when it is first made."""
DASHBOARD_ROOT = "RLSIFT_DASHBOARD_ROOT"
"""Names to the server the root whose reports it serves."""
WORKER = OFFLINE | {
    # A run whose machine is gone shows by its heartbeats alone; 30 s is the shortest that Prefect allows.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The sentences of the steps stand in the flow run's log.
    "PREFECT_LOGGING_EXTRA_LOGGERS": "rlsift",
}


def make_server(root: Path, home: Path, port: int) -> Server:
    pages = {
        "PREFECT_SERVER_UI_ENABLED": "true",
        "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
        # By default it is written into the installed package, which need not be ours to write.
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "pages"),
        DASHBOARD_ROOT: str(root),
    }
    return Server(home, port, OFFLINE | pages, app="flows.dashboard.app:create_app")


def make_workers(home: Path, settings: dict[str, str]) -> list[Child]:
    return [
        Child(
            f"the worker of pool {pool}",
            ["-m", "prefect", "worker", "start", "--type", "process", "--pool", pool, "--name", pool],
            log=home / f"worker-{pool}.log",
            env=WORKER | settings,
        )
        for pool in POOLS
    ]
