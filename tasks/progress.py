"""What a running step tells the world, and the plain log that is told when nobody else listens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

logger = logging.getLogger("rlsift")
logger.setLevel(logging.INFO)  # Prefect, which shows these sentences in a flow run's log, lends handlers but no level


class Reporter(Protocol):
    """One step at a time; calls may come from any thread."""

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        """A step begins, e.g. "stage 1/2 · train", with `done` units left over from an earlier attempt.

        `total` is None and `unit` empty where there is nothing to count.
        """

    def advance(self, n: int = 1, **facts: str | float) -> None:
        """`n` more units are done. `facts` stand beside the bar, e.g. reward=0.53."""

    def finish(self, outcome: str) -> None:
        """The step is over: "done", "cached" or "failed"."""

    def say(self, message: str) -> None: ...


@dataclass
class StepProgress:
    """How far a step is; all rates count only what this attempt did."""

    label: str
    total: int | None
    unit: str
    resumed_at: int
    started_at: float
    done: int
    facts: Mapping[str, str | float] = field(default_factory=dict)

    def counted(self) -> str:
        """E.g. "40/100 steps"; empty where nothing was counted."""
        if self.total is None:
            return f"{self.done:,} {self.unit}" if self.done else ""
        return f"{self.done:,}/{self.total:,} {self.unit}"

    def rate(self, now: float) -> float | None:
        """Units a second, once there is something to divide."""
        fresh = self.done - self.resumed_at
        return fresh / (now - self.started_at) if fresh > 0 and now > self.started_at else None

    def seconds_left(self, now: float) -> float | None:
        rate = self.rate(now)
        return None if rate is None or self.total is None else max(self.total - self.done, 0) / rate


def format_duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_rate(rate: float, unit: str) -> str:
    shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}" if rate >= 0.01 else f"{rate:.1g}"
    return f"{shown} {unit}/s"


def format_facts(facts: Mapping[str, str | float]) -> str:
    shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in facts.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


ENDINGS = {"cached": "is cached", "failed": "has failed"}


class LogReporter:
    """Whole sentences in the log: at the start, at most every `interval` seconds, and at the end."""

    def __init__(self, interval: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._step: StepProgress | None = None
        self._said_at = 0.0

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        with self._lock:
            now = self._said_at = self._clock()
            self._step = StepProgress(label, total, unit, resumed_at=done, started_at=now, done=done)
        size = "" if total is None else f", {total:,} {unit}"
        resumed = f", {done:,} of them done before" if done else ""
        logger.info("%s begins%s%s.", label, size, resumed)

    def advance(self, n: int = 1, **facts: str | float) -> None:
        with self._lock:
            step, now = self._step, self._clock()
            if step is None:
                return
            step.done += n
            step.facts = {**step.facts, **facts}
            if now - self._said_at < self._interval:
                return
            self._said_at = now
            sentence = progress_sentence(step, now)
        logger.info("%s", sentence)

    def finish(self, outcome: str) -> None:
        with self._lock:
            step, self._step = self._step, None
            now = self._clock()
        if step is None:
            return
        ending = ENDINGS.get(outcome, f"is {outcome}")
        counted = f" with {step.counted()}" if step.counted() else ""
        duration = format_duration(now - step.started_at)
        logger.info("%s %s after %s%s.", step.label, ending, duration, counted)

    def say(self, message: str) -> None:
        logger.info("%s", message)


def progress_sentence(step: StepProgress, now: float) -> str:
    """E.g. "stage 1/2 · train has 40/100 steps done, at 2 steps/s, about 30 s left, reward=0.53." """
    rate, left = step.rate(now), step.seconds_left(now)
    parts = [f"{step.label} has {step.counted()} done"]
    if rate is not None:
        parts.append(f"at {format_rate(rate, step.unit)}")
    if left is not None:
        parts.append(f"about {format_duration(left)} left")
    if step.facts:
        parts.append(format_facts(step.facts))
    return ", ".join(parts) + "."


# A module global and not a context variable: Prefect runs tasks in threads of its own.
_reporter: Reporter = LogReporter()


def get_reporter() -> Reporter:
    return _reporter


@contextmanager
def use_reporter(reporter: Reporter) -> Iterator[None]:
    """Make `reporter` the one that steps speak to, and put the former one back afterwards."""
    global _reporter
    former, _reporter = _reporter, reporter
    try:
        yield
    finally:
        _reporter = former
