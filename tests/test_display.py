"""Progress on a terminal and in the log, and the closing table."""

from __future__ import annotations

import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from flows.display import RichReporter, RunSummary, StageSummary, make_reporter, print_summary
from tasks.progress import LogReporter, format_duration, format_rate, get_reporter, use_reporter

ROOT = Path(__file__).parents[1]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def drawn(renderable: object, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(renderable)
    return capture.get().splitlines()


# --- the current reporter ----------------------------------------------------------------------------------


def test_use_reporter_is_seen_by_other_threads_and_puts_the_former_back() -> None:
    former, mine, seen = get_reporter(), LogReporter(), []
    with use_reporter(mine):
        thread = threading.Thread(target=lambda: seen.append(get_reporter()))
        thread.start()
        thread.join()
    assert seen == [mine]
    assert get_reporter() is former


# --- the log -----------------------------------------------------------------------------------------------


def test_the_log_has_sentences_at_the_start_every_ten_seconds_and_at_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="rlsift")
    reporter = LogReporter(clock=clock)
    reporter.start("stage 1/2 · train", 100, "steps", done=20)
    for _ in range(25):
        clock.now += 1
        reporter.advance(reward=0.53125, kept=3)
    reporter.finish("done")
    assert caplog.messages == [
        "stage 1/2 · train begins, 100 steps, 20 of them done before.",
        "stage 1/2 · train has 30/100 steps done, at 1 steps/s, about 1 min 10 s left, reward=0.531, kept=3.",
        "stage 1/2 · train has 40/100 steps done, at 1 steps/s, about 1 min 00 s left, reward=0.531, kept=3.",
        "stage 1/2 · train is done after 25 s with 45/100 steps.",
    ]


def test_a_step_with_nothing_to_count(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rlsift")
    reporter = LogReporter(clock=clock)
    reporter.start("stage 1/2 · select", None, "")
    clock.now += 90
    reporter.finish("failed")
    reporter.finish("failed")
    assert caplog.messages == [
        "stage 1/2 · select begins.",
        "stage 1/2 · select has failed after 1 min 30 s.",
    ]


def test_no_advance_is_lost_between_threads() -> None:
    reporter = RichReporter(Console(file=io.StringIO()))
    reporter.start("stage 0/1 · rollouts", 8000, "prompts")
    threads = [threading.Thread(target=lambda: [reporter.advance() for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "8,000/8,000 prompts" in "".join(drawn(reporter))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (7620, "2 h 07 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(1234.5, "1,234"), (12.345, "12.3"), (0.0123, "0.0123"), (0.004, "0.004")])
def test_rates(rate: float, text: str) -> None:
    assert format_rate(rate, "steps") == f"{text} steps/s"


# --- the terminal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_running_step_takes_two_lines(clock: Clock, width: int) -> None:
    reporter = RichReporter(Console(file=io.StringIO()), clock)
    reporter.start("stage 0/2 · rollouts validation", 200_000, "prompts", done=100_000)
    clock.now += 50
    reporter.advance(25_000, pass_rate=0.31, note="a long fact " * 20)
    first, second = (line.rstrip() for line in drawn(reporter, width))
    assert "stage 0/2 · rollouts validation  pass_rate=0.31" in first and first.endswith("…")
    assert second.endswith("125,000/200,000 prompts · 500 prompts/s · 2 min 30 s left")


def test_a_finished_step_stays_as_one_line(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=80)
    reporter = RichReporter(console, clock)
    for outcome in ("done", "cached", "failed"):
        reporter.start("stage 1/2 · train", 10 if outcome == "done" else None, "steps")
        clock.now += 61
        if outcome == "done":
            reporter.advance(10, reward=0.5, note="x" * 80)
        reporter.finish(outcome)
    assert isinstance(console.file, io.StringIO)
    done, cached, failed = console.file.getvalue().splitlines()
    assert done.startswith("✓ stage 1/2 · train ") and "1 min 01 s · 10/10 steps · reward=0.5" in done
    assert cached.split() == ["=", "stage", "1/2", "·", "train", "cached"]
    assert failed.startswith("✗ stage 1/2 · train ") and failed.rstrip().endswith("failed · 1 min 01 s")


def test_without_a_terminal_the_log_goes_plainly_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("rlsift")
    before = (list(logger.handlers), logger.level, logger.propagate)
    with make_reporter(Console(file=io.StringIO())) as reporter:
        reporter.start("stage 1/2 · train", 10, "steps")
        reporter.say("50% [done]")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["stage 1/2 · train begins, 10 steps.", "50% [done]"]
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def test_log_handlers_of_the_terminal_print_above_the_display_and_are_put_back() -> None:
    early = logging.StreamHandler(sys.stderr)

    class ConsoleHandler(logging.StreamHandler[io.StringIO]):
        """As Prefect's: it prints through a console made long before."""

        console = Console(file=sys.stderr)

        def emit(self, record: logging.LogRecord) -> None:
            self.console.print(self.format(record), soft_wrap=True)

    logger = logging.getLogger("test_display")
    logger.handlers = [early, ConsoleHandler(sys.stderr)]
    logger.propagate = False  # once imported, Prefect has a handler of its own at the root
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with make_reporter(terminal) as reporter:
        reporter.start("stage 1/2 · train", 10, "steps")
        logger.warning("look here")
        assert isinstance(terminal.file, io.StringIO)
        assert terminal.file.getvalue().count("look here") == 2
    assert early.stream is sys.stderr
    assert ConsoleHandler.console.file is sys.stderr
    logger.handlers = []


def test_logging_s_handler_of_last_resort_needs_nobody_s_help() -> None:
    logger = logging.getLogger("test_display")
    assert logging.lastResort is not None
    logger.handlers, logger.propagate = [logging.lastResort], False
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with make_reporter(terminal) as reporter:
        reporter.start("stage 1/2 · train", 10, "steps")
        logger.warning("look here")
        assert isinstance(terminal.file, io.StringIO)
        assert terminal.file.getvalue().count("look here") == 1
    logger.handlers = []


DEMO = """
import time
from rich.console import Console
from flows.display import make_reporter
with make_reporter(Console(stderr=True)) as reporter:
    reporter.start("stage 1/2 · train", 10, "steps")
    reporter.advance(3)
    print("ready", flush=True)
    time.sleep(30)
"""


def test_ctrl_c_leaves_the_terminal_sane() -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", DEMO], stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True
    )
    os.close(slave)
    screen = _read_until(master, b"ready")
    child.send_signal(signal.SIGINT)
    screen += _read_until(master, b"KeyboardInterrupt")
    child.wait(timeout=60)
    os.close(master)
    assert b"\x1b[?25l" in screen  # the cursor was hidden,
    assert screen.rindex(b"\x1b[?25h") > screen.rindex(b"\x1b[?25l")  # and is shown again
    assert "■" in screen.decode() and "stopped" in screen.decode()


def _read_until(master: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 200
    while wanted not in seen and time.monotonic() < deadline:
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 65536)
    assert wanted in seen, seen
    return seen


# --- the closing table -------------------------------------------------------------------------------------


def summary(pass_rates: Sequence[dict[str, tuple[float | None, float | None]]]) -> RunSummary:
    return RunSummary(
        run_id="demo [1]",
        metric="avg@8",
        stages=[StageSummary(i, 960, 123_456, 23_456, rates) for i, rates in enumerate(pass_rates, start=1)],
        report=Path("/a/rather/long/path/that/does/not/fit/into/eighty/columns/of/a/terminal/report.html"),
        next_commands=["rlsift sql " + "x" * 90],
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_closing_table_fits(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    rates = {f"a_set_with_a_rather_long_name_{i}": (0.312, 0.524) for i in range(4)}
    print_summary(console, summary([rates, {"short": (0.5, 1.0)}, {"short": (1.0, None)}, {}]))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    table = [line for line in lines if line.startswith(("│", "┃", "┏", "└", "├"))]
    assert {len(line) for line in table} == {len(table[0])} and len(table[0]) <= width
    text = "\n".join(lines)
    assert "demo [1]" in text
    assert "123,456" in text and "23,456 (16%)" in text
    assert text.count("31.2 →  52.4%") == 4
    assert "50.0 → 100.0%" in text and "100.0 →     –%" in text
    # Paths and commands stay whole, so that they can be copied.
    assert any(line.endswith("terminal/report.html") and line.startswith("Report: /a/") for line in lines)
    assert lines[-1] == "  rlsift sql " + "x" * 90
