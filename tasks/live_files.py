"""What a step that goes on leaves where another process can look: how far it is, and where its training lies.

`rlsift watch` reads them; nothing is decided by them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from tasks.locks import lock_path
from tasks.progress import Reporter, StepProgress

WRITE_EVERY_SECONDS = 1.0


def progress_path(root: Path, fingerprint: str) -> Path:
    path = lock_path(root, fingerprint)
    return path.with_name(f"{path.name}.progress")


def training_directory(root: Path, run_id: str, stage: int, fingerprint: str) -> Path:
    """Of a train step: checkpoints, records, logs."""
    return root / "stages" / run_id / f"{stage}-{fingerprint}"


def read_progress(path: Path) -> StepProgress | None:
    """How far a step was when it last told; its clock stands at 0. None where it has not told yet, or has ended."""
    try:
        return StepProgress(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


class ProgressFile:
    """Keeps the file of a running step, and passes everything on to `inner`.

    A disk that is full, or gone, is told of by what the step itself writes: here it is passed over.
    """

    def __init__(self, inner: Reporter, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._step: StepProgress | None = None
        self._written_at = 0.0

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        self._inner.start(label, total, unit, done)
        with self._lock:
            self._step = StepProgress(label, total, unit, resumed_at=done, started_at=self._clock(), done=done)
            self._write(self._step)

    def advance(self, n: int = 1, **facts: str | float) -> None:
        self._inner.advance(n, **facts)
        with self._lock:
            if self._step is None:
                return
            self._step.done += n
            self._step.facts = {**self._step.facts, **facts}
            if self._clock() - self._written_at >= WRITE_EVERY_SECONDS:
                self._write(self._step)

    def finish(self, outcome: str) -> None:
        self._inner.finish(outcome)
        with self._lock, suppress(OSError):
            self._step = None
            self._path.unlink(missing_ok=True)

    def say(self, message: str) -> None:
        self._inner.say(message)

    def _write(self, step: StepProgress) -> None:
        """Under a temporary name first; not fsynced, since nothing needs it after a crash."""
        self._written_at = now = self._clock()
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        with suppress(OSError):
            temporary.write_text(json.dumps(asdict(replace(step, started_at=step.started_at - now))), encoding="utf-8")
            temporary.replace(self._path)
