"""Prefect for a run from the shell: a server of its own on loopback, started early, quiet, never calling home.

Where PREFECT_API_URL names a server, that one is used and nothing is started.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tasks.errors import StepFailed

SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # What fails is told by the command line itself, once.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    # What a run of one process needs not: less to start, less on two cores while it works.
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}
START_SECONDS = 120.0

# Whatever ends this process, kill -9 included, ends the server: Linux sends SIGTERM (15) by PR_SET_PDEATHSIG (1).
# The setting survives the exec that follows.
DIES_WITH_PARENT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SERVER = ["-m", "uvicorn", "--factory", "prefect.server.api.server:create_app", "--log-level", "warning"]


class LocalServer:
    """A server for this process alone. Make it before anything imports Prefect, which then reads its settings."""

    def __init__(self, root: Path) -> None:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        self._is_ours = "PREFECT_API_URL" not in os.environ
        if self._is_ours:
            self._home = Path(os.environ.setdefault("PREFECT_HOME", str(root / "prefect")))
            self._log = self._home / "server.log"
            self._port = _free_port()
            os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{self._port}/api"

    def start(self) -> None:
        """Begin to start it, from the main thread. It takes seconds, in which the caller can import torch."""
        if not self._is_ours:
            return
        self._home.mkdir(parents=True, exist_ok=True)
        address = ["--host", "127.0.0.1", "--port", str(self._port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DIES_WITH_PARENT, *SERVER, *address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the run, which needs the server until it has marked itself as stopped.
                start_new_session=True,
            )
        atexit.register(self._stop)

    def wait(self) -> None:
        """Return when it answers. Raises StepFailed with the end of its log when it does not."""
        if not self._is_ours:
            return
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{os.environ['PREFECT_API_URL']}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])
        raise StepFailed(
            f"Prefect's own server did not answer within {START_SECONDS:.0f} s, or ended; is another run of this root "
            f"starting, or the machine busy? Its log {self._log} ends with:\n{tail}"
        )

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
