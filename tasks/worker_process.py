"""A process that works for a step and is ended with it, also when the step ends by Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 10.0


@contextmanager
def worker_process(
    module: str, arguments: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m module arguments...`, its output appended to `log_path`."""
    with log_path.open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
            start_new_session=True,  # Ctrl-C in the terminal reaches this process alone, which ends the worker
        )
        try:
            yield worker
        finally:
            if worker.poll() is None:
                worker.terminate()
                try:
                    worker.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.wait()


def log_tail(log_path: Path) -> str:
    return "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
