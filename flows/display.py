"""What a person at a terminal sees: the live progress of a run and its closing table."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tasks.progress import (
    LogReporter,
    Reporter,
    StepProgress,
    format_duration,
    format_facts,
    format_rate,
    logger,
)

_MARKS = {"done": ("✓", "green"), "cached": ("=", "cyan"), "failed": ("✗", "red")}
_LABEL_WIDTH = 32
_BAR_WIDTH = 18


class RichReporter:
    """Two live lines for the running step; finished steps stay above, one line each."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._lock = threading.Lock()
        self._step: StepProgress | None = None
        self._spinner = Spinner("dots", style="cyan")

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        with self._lock:
            self._step = StepProgress(label, total, unit, resumed_at=done, started_at=self._clock(), done=done)

    def advance(self, n: int = 1, **facts: str | float) -> None:
        with self._lock:
            if self._step is not None:
                self._step.done += n
                self._step.facts = {**self._step.facts, **facts}

    def finish(self, outcome: str) -> None:
        with self._lock:
            step, self._step = self._step, None
        if step is not None:
            line = _finished_line(step, outcome, self._clock() - step.started_at)
            self._console.print(line, no_wrap=True, overflow="ellipsis")

    def say(self, message: str) -> None:
        self._console.print(Text(message))

    def __rich__(self) -> RenderableType:
        with self._lock:
            step = self._step
            if step is None:
                return Text()
            return Group(self._first_line(step), progress_bar(step, self._clock()))

    def _first_line(self, step: StepProgress) -> RenderableType:
        line = Text.assemble((step.label, "bold"), "  ", (format_facts(step.facts), "dim"))
        line.no_wrap, line.overflow = True, "ellipsis"
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner, line)
        return grid


def progress_bar(step: StepProgress, now: float) -> RenderableType:
    """A bar, the count, the rate, and the time left or spent."""
    rate, left = step.rate(now), step.seconds_left(now)
    elapsed = f"{format_duration(now - step.started_at)} so far"
    words = [
        step.counted(),
        "" if rate is None else format_rate(rate, step.unit),
        elapsed if left is None else f"{format_duration(left)} left",
    ]
    bar = ProgressBar(total=step.total, completed=step.done, width=_BAR_WIDTH, pulse=step.total is None)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(" ", bar, Text(" · ".join(filter(None, words)), no_wrap=True, overflow="ellipsis"))
    return grid


def _finished_line(step: StepProgress, outcome: str, seconds: float) -> Text:
    mark, style = _MARKS.get(outcome, ("■", "yellow"))
    line = Text(f"{mark} ", style=style)
    line.append(step.label.ljust(_LABEL_WIDTH), style="default")
    details = [
        "" if outcome == "done" else outcome,
        "" if outcome == "cached" else format_duration(seconds),
        step.counted(),
        format_facts(step.facts),
    ]
    return line.append("  " + " · ".join(filter(None, details)), style="dim")


@contextmanager
def make_reporter(console: Console) -> Iterator[Reporter]:
    """The live display on a terminal; plain lines on stderr anywhere else."""
    if not console.is_terminal or console.is_dumb_terminal:
        with _plain_log_lines():
            yield LogReporter()
        return
    reporter = RichReporter(console)
    # Transient: whatever ends the run, Ctrl-C included, leaves no half-drawn bar behind.
    live = Live(reporter, console=console, refresh_per_second=8, transient=True)
    with _logs_above_the_display(), live:
        try:
            yield reporter
        finally:
            reporter.finish("stopped")


@contextmanager
def _plain_log_lines() -> Iterator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _CurrentStderr(io.TextIOBase):
    """Writes to what sys.stderr is by then; while the display is live, that prints above it.

    Rich's own stand-in would not do: a Console that is given it writes to the terminal behind it.
    """

    def write(self, text: str) -> int:
        return sys.stderr.write(text)


@contextmanager
def _logs_above_the_display() -> Iterator[None]:
    """Redirect the log handlers that hold the terminal; Prefect's hold it in a console of their own."""
    terminals = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    stream = cast(TextIO, _CurrentStderr())
    known = [logging.root, *logging.Logger.manager.loggerDict.values()]
    handlers = {handler for one in known if isinstance(one, logging.Logger) for handler in one.handlers}
    with ExitStack() as undo:
        for handler in handlers:
            # logging's handler of last resort looks sys.stderr up itself, and lets nobody set it.
            follows = isinstance(handler, type(logging.lastResort))
            if isinstance(handler, logging.StreamHandler) and not follows and handler.stream in terminals:
                undo.callback(handler.setStream, handler.stream)
                handler.setStream(stream)
            own = getattr(handler, "console", None)
            if isinstance(own, Console) and own.file in terminals:
                undo.callback(setattr, own, "file", own.file)
                own.file = stream
        yield


@dataclass(frozen=True)
class StageSummary:
    stage: int
    prompts_selected: int
    rollouts: int
    rollouts_skipped: int
    pass_rates: Mapping[str, tuple[float | None, float | None]]
    """Before and after the stage, by evaluation set."""


@dataclass(frozen=True)
class RunSummary:
    run_id: str
    metric: str
    """What the pass rates are, e.g. "avg@8"."""
    stages: Sequence[StageSummary]
    report: Path | None
    next_commands: Sequence[str] = ()


def print_summary(console: Console, summary: RunSummary) -> None:
    table = Table(title=Text(summary.run_id, "bold"), title_justify="left", header_style="dim")
    for heading in ("stage", "prompts", "rollouts", "skipped"):
        table.add_column(heading, justify="right")
    table.add_column("evaluation set", overflow="fold")
    table.add_column(summary.metric, no_wrap=True)
    for stage in summary.stages:
        made = f"{stage.rollouts:,}"
        counts = [str(stage.stage), f"{stage.prompts_selected:,}", made, _skipped(stage)]
        if not stage.pass_rates:
            table.add_row(*counts)
        for name, (before, after) in stage.pass_rates.items():
            table.add_row(*counts, Text(name), _per_cent(before, after))
            counts = [""] * len(counts)
        table.add_section()
    console.print()
    console.print(table)
    if summary.report is not None:
        _print_line(console, f"Report: {summary.report}")
    if summary.next_commands:
        _print_line(console, "Next:")
        for command in summary.next_commands:
            _print_line(console, f"  {command}")


def _print_line(console: Console, line: str) -> None:
    # Neither wrapped nor styled, so that paths and commands can be copied.
    console.print(Text(line), soft_wrap=True, highlight=False)


def _skipped(stage: StageSummary) -> str:
    proposed = stage.rollouts + stage.rollouts_skipped
    share = f" ({stage.rollouts_skipped / proposed:.0%})" if stage.rollouts_skipped else ""
    return f"{stage.rollouts_skipped:,}{share}"


def _per_cent(before: float | None, after: float | None) -> str:
    first, second = ("–" if value is None else f"{100 * value:.1f}" for value in (before, after))
    return f"{first:>5} → {second:>5}%"
