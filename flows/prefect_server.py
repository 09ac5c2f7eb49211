"""Prefect servers of our own: on loopback, started early, quiet, never calling home."""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError

from flows.child_process import Child
from tasks.errors import ServerGone, StepFailed
from warehouse import WarehouseError
from warehouse.files import exclusive_lock

OFFLINE = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
FOR_ONE_RUN = OFFLINE | {
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
START_SECONDS = 300.0
STOP_SECONDS = 3.0
"""For a server that is of no more use to anybody; SQLite loses nothing by a kill."""
SERVER = ["-m", "uvicorn", "--factory", "--log-level", "warning"]
APP = "prefect.server.api.server:create_app"


class Server(Child):
    """A Prefect server at a port of loopback, its database and log in `home`."""

    def __init__(self, home: Path, port: int, env: Mapping[str, str], *, app: str = APP) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.settings = {"PREFECT_HOME": str(home), "PREFECT_API_URL": f"{self.url}/api"}
        super().__init__(
            "the server",
            [*SERVER, app, "--host", "127.0.0.1", "--port", str(port)],
            log=home / "server.log",
            env=self.settings | dict(env),
        )

    def wait_until_it_answers(self) -> None:
        """Raises StepFailed with the end of its log when it does not."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.is_running:
            if answers(self.url):
                return
            time.sleep(0.1)
        raise StepFailed(
            f"Prefect's own server did not answer within {START_SECONDS:.0f} s, or ended; is the machine busy? "
            f"Its log {self.log} ends with:\n{self.log_tail()}"
        )


class LocalServer:
    """A server for this process alone, or none where PREFECT_API_URL names one that is there already.

    Make it before anything imports Prefect, which then reads its settings.
    """

    def __init__(self, root: Path) -> None:
        for name, value in FOR_ONE_RUN.items():
            os.environ.setdefault(name, value)
        self._server: Server | None = None
        if "PREFECT_API_URL" not in os.environ:
            self._held = ExitStack()
            home = _home_of_its_own(Path(os.environ.get("PREFECT_HOME", root / "prefect")), self._held)
            self._server = Server(home, free_port(), {})
            os.environ.update(self._server.settings)

    def start(self) -> None:
        """Begin to start it, from the main thread. It takes seconds, in which the caller can import torch."""
        if self._server is not None:
            self._server.start()
            atexit.register(self._stop)

    def wait(self) -> None:
        """Return when it answers. Raises StepFailed with the end of its log when it does not."""
        if self._server is not None:
            self._server.wait_until_it_answers()

    def raise_if_gone(self, error: Exception) -> None:
        """Raises ServerGone where the server does not answer, which `error` then follows from."""
        if self._server is None:
            url = os.environ["PREFECT_API_URL"]
            if not _somebody_answers(f"{url}/health"):
                server = f"Prefect's server at {url.removesuffix('/api')}"
                raise ServerGone(f"{server} does not answer; is it running? What failed is: {error}") from error
        elif not self._server.is_running:
            raise ServerGone(
                f"Prefect's own server has ended; its log {self._server.log} ends with:\n{self._server.log_tail()}"
            ) from error

    def _stop(self) -> None:
        assert self._server is not None
        self._server.terminate()
        self._server.wait(STOP_SECONDS)


def answers(url: str) -> bool:
    """Whether a Prefect server is up at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/api/health", timeout=5):
            return True
    except OSError:
        return False


def _somebody_answers(url: str) -> bool:
    """Be it with a refusal: that is no server which is gone."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except HTTPError:
        return True
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _home_of_its_own(first: Path, held: ExitStack) -> Path:
    """`first`, else `first`-2 and so on: two servers that start in one home get in each other's way.

    Locked until `held` is closed or this process ends.
    """
    for number in itertools.count(1):
        home = first if number == 1 else first.with_name(f"{first.name}-{number}")
        home.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(exclusive_lock(home / "lock", timeout_seconds=0))
        except WarehouseError:
            continue
        return home
    raise AssertionError("itertools.count ends")
