"""All trackers of a stage together: who gets which step, and what happens when one fails."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tracking_cases import EVALUATION, STEPS, stage

from pipeline_lib.config import MlflowTracker, TensorBoardTracker, TrackioTracker, WandbTracker
from pipeline_lib.tracking import TRACKERS, Trackers, make_trackers


class Memory:
    """Remembers what it is told, and fails at step `fails_at`."""

    def __init__(self, last_step: int | None = 0, fails_at: int | None = None) -> None:
        self.last_step = last_step
        self.fails_at = fails_at
        self.logged: list[tuple[int, Mapping[str, float]]] = []
        self.closed: list[bool] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.fails_at:
            raise ConnectionError("server away")
        self.logged.append((step, metrics))

    def close(self, *, failed: bool) -> None:
        self.closed.append(failed)

    def steps(self) -> list[int]:
        return [step for step, _ in self.logged]


def trackers_of(*memories: Memory, logged: int = 0, warn: Any = pytest.fail) -> Trackers:
    return Trackers([(f"m{i}", lambda m=m: m) for i, m in enumerate(memories)], logged=logged, warn=warn)  # type: ignore[misc]


def test_each_step_is_logged_once_however_often_it_is_carried() -> None:
    memory = Memory()
    with trackers_of(memory) as trackers:
        trackers.log_steps(STEPS[:1])
        trackers.log_steps(STEPS[:2])
        trackers.log_steps(STEPS)
        trackers.log(3, EVALUATION)
    assert memory.logged == [*STEPS, (3, EVALUATION)]
    assert memory.closed == [False]


def test_a_run_that_has_steps_gets_the_later_ones() -> None:
    told, knows_nothing, behind = Memory(last_step=2), Memory(last_step=None), Memory(last_step=0)
    with trackers_of(told, knows_nothing, behind, logged=1) as trackers:
        trackers.log_steps(STEPS)
    assert told.steps() == [3]
    assert knows_nothing.steps() == [2, 3]
    assert behind.steps() == [1, 2, 3]


def test_a_tracker_that_fails_is_told_of_once_and_the_others_go_on() -> None:
    said: list[str] = []
    failing, other = Memory(fails_at=2), Memory()
    with trackers_of(failing, other, warn=said.append) as trackers:
        for step in STEPS:
            trackers.log_steps([step])
        trackers.log(3, EVALUATION)
    assert failing.steps() == [1]
    assert other.logged == [*STEPS, (3, EVALUATION)]
    assert len(said) == 1 and "m0" in said[0] and "server away" in said[0] and "goes on" in said[0]


def test_a_tracker_that_cannot_open_its_run_is_told_of_and_left_out() -> None:
    def refuse() -> Memory:
        raise ConnectionError("no route to host")

    said: list[str] = []
    other = Memory()
    with Trackers([("away", refuse), ("here", lambda: other)], logged=0, warn=said.append) as trackers:
        trackers.log_steps(STEPS)
    assert other.steps() == [1, 2, 3]
    assert len(said) == 1 and "away" in said[0] and "no route to host" in said[0]


def test_a_stage_that_fails_closes_its_runs_as_failed() -> None:
    memory = Memory()
    with pytest.raises(RuntimeError, match="worker"), trackers_of(memory):
        raise RuntimeError("the worker died")
    assert memory.closed == [True]


@pytest.mark.parametrize("config", [TensorBoardTracker(), WandbTracker(), MlflowTracker(), TrackioTracker()])
def test_a_missing_library_is_refused_with_the_name_of_its_extra(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, TRACKERS[config.type].partition(":")[0], raising=False)
    real_import = builtins.__import__

    def without(name: str, globals: Any = None, *args: Any) -> Any:
        if name.partition(".")[0] == config.type:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real_import(name, globals, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=rf"tracking: type {config.type} .*No module.*\[{config.type}\]"):
        make_trackers([config], stage(tmp_path), logged=0, warn=pytest.fail)


def test_no_tracker_imports_no_library(tmp_path: Path) -> None:
    before = set(sys.modules)
    with make_trackers([], stage(tmp_path), logged=0, warn=pytest.fail) as trackers:
        trackers.log_steps(STEPS)
    assert not {name for name in set(sys.modules) - before if name in TRACKERS}
    assert list(tmp_path.iterdir()) == []
