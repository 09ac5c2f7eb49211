"""The progress of a running step in a file, for whoever watches from another process."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from step_cases import FileStep, run_config

from tasks.live_files import ProgressFile, progress_path, read_progress
from tasks.progress import LogReporter
from tasks.step import Work, Workshop, perform


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_told_is_there_to_read_at_most_once_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rlsift")
    path, clock = tmp_path / "f00d.progress", Clock()
    reporter = ProgressFile(LogReporter(), path, clock)
    assert read_progress(path) is None
    reporter.start("stage 1/2 · train", 100, "steps", done=20)
    clock.now += 0.5
    reporter.advance(5, reward=0.5)
    told = read_progress(path)
    assert told is not None and told.counted() == "20/100 steps"
    clock.now += 4.5
    reporter.advance(5, kept=3)
    told = read_progress(path)
    assert told is not None and told.counted() == "30/100 steps"
    assert (told.rate(0.0), told.seconds_left(0.0)) == (2.0, 35.0)  # 10 in 5 seconds
    assert told.facts == {"reward": 0.5, "kept": 3}
    reporter.finish("done")
    assert list(tmp_path.iterdir()) == []
    assert caplog.messages[0].startswith("stage 1/2 · train begins")


def test_a_place_that_cannot_be_written_disturbs_no_step(tmp_path: Path) -> None:
    reporter = ProgressFile(LogReporter(), tmp_path / "missing" / "f00d.progress")
    reporter.start("stage 1/2 · train", 100, "steps")
    reporter.advance(5)
    reporter.finish("done")


class Looking(FileStep):
    def work(self, at: Workshop) -> Work:
        work = super().work(at)
        told = read_progress(progress_path(self.root, self.fingerprint))
        assert told is not None and told.total == 1 and told.unit == "files"
        return work


def test_a_step_that_is_performed_tells_of_itself_and_leaves_nothing(tmp_path: Path) -> None:
    step = Looking(run_config(tmp_path / "root"), 1, output=tmp_path / "out")
    perform(step)
    assert not progress_path(step.root, step.fingerprint).exists()
