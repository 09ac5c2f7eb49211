"""The running step on its flow run's page: how far it is, and the last training steps."""

from __future__ import annotations

import threading
import time
from functools import partial

from tasks.artifacts.pages import training_steps
from tasks.artifacts.sender import Sender, Shown
from tasks.progress import ENDINGS, Reporter, StepProgress, format_duration, progress_sentence
from tasks.step import Step
from warehouse import Warehouse

PROGRESS_SECONDS = 5.0
METRICS_SECONDS = 20.0
BAR = 20


class PageReporter:
    """Tells the page what it hears, and passes everything on to `inner`."""

    def __init__(self, inner: Reporter, step: Step, warehouse: Warehouse, sender: Sender) -> None:
        self._inner = inner
        self._sender = sender
        self._metrics = partial(training_steps, warehouse, step.run.name, step.stage) if step.name == "train" else None
        self._lock = threading.Lock()
        self._step: StepProgress | None = None
        self._progress_at = self._metrics_at = 0.0

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        self._inner.start(label, total, unit, done)
        with self._lock:
            now = self._progress_at = self._metrics_at = time.monotonic()
            self._step = StepProgress(label, total, unit, resumed_at=done, started_at=now, done=done)
            self._show(f"{label} has begun.")

    def advance(self, n: int = 1, **facts: str | float) -> None:
        self._inner.advance(n, **facts)
        with self._lock:
            step, now = self._step, time.monotonic()
            if step is None:
                return
            step.done += n
            step.facts = {**step.facts, **facts}
            if now - self._progress_at >= PROGRESS_SECONDS:
                self._progress_at = now
                self._show(progress_sentence(step, now))
            if self._metrics is not None and now - self._metrics_at >= METRICS_SECONDS:
                self._metrics_at = now
                self._sender.put("train-steps", self._metrics)

    def finish(self, outcome: str) -> None:
        self._inner.finish(outcome)
        with self._lock:
            if self._step is not None:
                seconds = time.monotonic() - self._step.started_at
                ending = ENDINGS.get(outcome, f"is {outcome}")
                self._show(f"{self._step.label} {ending} after {format_duration(seconds)}.")
                self._step = None

    def say(self, message: str) -> None:
        self._inner.say(message)

    def _show(self, sentence: str) -> None:
        assert self._step is not None
        bar = ""
        if self._step.total:
            full = round(BAR * min(1.0, self._step.done / self._step.total))
            bar = f"`{'█' * full}{'░' * (BAR - full)}`"
        shown = Shown(sentence, f"{bar} {sentence}".lstrip())
        self._sender.put("progress", lambda: shown)
