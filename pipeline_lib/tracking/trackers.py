"""All trackers of a stage. One that fails is told of once and left out from then on; training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from pipeline_lib.tracking.base import Tracker


@dataclass
class _Open:
    kind: str
    tracker: Tracker
    logged: int


class Trackers:
    """`makers` open the trackers by their `type`; `logged` is the last step of earlier attempts, for one that
    cannot tell; `warn` is told in words of one that fails."""

    def __init__(
        self, makers: Sequence[tuple[str, Callable[[], Tracker]]], *, logged: int, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._open: list[_Open] = []
        for kind, make in makers:
            self._attempt(kind, partial(self._add, kind, make, logged))

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for entry in self._open:
            self._attempt(entry.kind, partial(entry.tracker.close, failed=kind is not None))

    def log_steps(self, steps: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Log training steps, ascending, to each tracker that does not have them yet."""
        self._open = [e for e in self._open if self._attempt(e.kind, partial(_log_new, e, steps))]

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics that belong to `step` beside those of the training step itself."""
        self._open = [e for e in self._open if self._attempt(e.kind, partial(e.tracker.log, step, metrics))]

    def _add(self, kind: str, make: Callable[[], Tracker], logged: int) -> None:
        tracker = make()
        self._open.append(_Open(kind, tracker, logged if tracker.last_step is None else tracker.last_step))

    def _attempt(self, kind: str, action: Callable[[], None]) -> bool:
        """Whether the action succeeded. What a library raises is its own affair, so anything counts as failure."""
        try:
            action()
        except Exception as error:
            self._warn(
                f"Tracker {kind} failed and gets nothing more of this stage ({type(error).__name__}: {error}). "
                "The stage goes on; the warehouse has all of its metrics."
            )
            return False
        return True


def _log_new(entry: _Open, steps: Sequence[tuple[int, Mapping[str, float]]]) -> None:
    for step, metrics in steps:
        if step > entry.logged:
            entry.tracker.log(step, metrics)
            entry.logged = step
