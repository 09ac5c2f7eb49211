"""The trainer's output in the log of the flow run: whole lines, once each, never a flood."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tasks.log_stream import LINES_A_LOOK, LogStream


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    monkeypatch.setattr("tasks.log_stream.LOOK_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger="rlsift.trainer")
    path = tmp_path / "worker.log"
    path.write_text("of an earlier attempt\n")
    return path


def add(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_only_whole_lines_are_told_and_each_once(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = LogStream(log)
    add(log, "one\ntw")
    stream.look()
    assert caplog.messages == ["one"]
    add(log, "o\n")
    stream.look()
    stream.look()
    assert caplog.messages == ["one", "two"]


def test_the_last_look_takes_what_was_never_ended(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = LogStream(log)
    add(log, "Killed")
    stream.look(last=True)
    assert caplog.messages == ["Killed"]


def test_of_a_flood_the_newest_lines_are_told_and_that_there_were_more(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = LogStream(log)
    add(log, "".join(f"line {n}\n" for n in range(100_000)))
    stream.look()
    assert len(caplog.messages) == LINES_A_LOOK + 1
    assert str(log) in caplog.messages[0] and caplog.messages[-1] == "line 99999"
    add(log, "after it\n")
    stream.look()
    assert caplog.messages[-1] == "after it" and len(caplog.messages) == LINES_A_LOOK + 2


def test_a_progress_bar_is_told_as_a_terminal_leaves_it(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = LogStream(log)
    add(log, "10%\r50%\r100%\n\n")
    stream.look()
    assert caplog.messages == ["100%"]
