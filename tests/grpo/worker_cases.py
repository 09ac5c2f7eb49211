"""Training workers as processes: started, waited for, watched."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE = 600.0


def start(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline_lib.grpo.worker", str(directory)], stdout=log, stderr=log
        )


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, f"no {what} after {PATIENCE} s"
        time.sleep(0.005)


def run_to_the_end(directory: Path) -> None:
    worker = start(directory)
    assert worker.wait(PATIENCE) == 0, (directory / "worker.log").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
