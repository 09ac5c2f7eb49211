"""Processes that end with this one, whatever ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Kill -9 included: Linux sends SIGTERM (15) by PR_SET_PDEATHSIG (1). The setting survives the exec that follows.
# SIGINT is put back, because a shell that starts a program with `&` has it ignored, and Prefect's workers need it.
DIES_WITH_PARENT = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Child:
    """`python ARGUMENTS`, its output appended to a log. Start it from the main thread, which it dies with."""

    def __init__(self, name: str, arguments: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._arguments = arguments
        self._env = env

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DIES_WITH_PARENT, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(self._env),
                # Ctrl-C in the terminal is for this process, which ends the child when it needs it no more.
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def children(self) -> list[int]:
        """Ids of the processes that it started and that go on; none where there is no /proc to tell."""
        return [pid for pid, parent in _parents() if parent == self._process.pid]

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self, seconds: float) -> None:
        """Return when it has ended; kill it after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])


def _parents() -> Iterator[tuple[int, int]]:
    """Every process that is not a zombie, and its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # The name of the program, in brackets, may hold anything.
            state, parent, *_ = stat.read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(stat.parent.name), int(parent)
