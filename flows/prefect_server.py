"""Prefect for a run from the shell: a server of its own on loopback, started early, quiet, and never calling home.

Where PREFECT_API_URL names a server, that one is used and nothing is started.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

QUIET_AND_LOCAL = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # What fails is told by the command line itself, once.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    # What a run of one process needs not: less to start, less on two cores while it works.
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}


def configure_prefect(root: Path) -> None:
    """Settings that the environment does not give already. Call before anything imports Prefect."""
    for name, value in QUIET_AND_LOCAL.items():
        os.environ.setdefault(name, value)
    if "PREFECT_API_URL" not in os.environ:
        home = Path(os.environ.setdefault("PREFECT_HOME", str(root / "prefect")))
        home.mkdir(parents=True, exist_ok=True)  # Prefect makes the last directory only


def start_server() -> Callable[[], None]:
    """Begin to start a server for this process alone; returns what waits until it answers.

    Its start takes seconds, in which the caller can import torch.
    """
    if "PREFECT_API_URL" in os.environ:
        return lambda: None
    from prefect.server.api.server import SubprocessASGIServer

    failure: list[Exception] = []

    def start() -> None:
        # The server inherits the mask: Ctrl-C in the terminal reaches it too, and the run that is to be marked
        # as stopped needs it until its own end.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            SubprocessASGIServer().start()
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=start, name="prefect-server", daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        if failure:
            raise RuntimeError(f"Prefect's own server did not start: {failure[0]}") from failure[0]

    return wait
