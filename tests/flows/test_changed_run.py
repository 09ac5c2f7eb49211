"""A run of a changed config: what it no longer takes leaves its views, and nothing of the history is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flow_cases import write_config
from pretended import pretend, run_pretended

from flows.chain import places
from flows.runs import record_run
from pipeline_lib.config_file import load_config
from warehouse import Warehouse

RECOLLECT = "influence={type: exact, on_stale: recollect}"
HISTORY = ("steps", "rollout_stats")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The config of a run of two stages that collects stale rollouts again, recorded complete."""
    path = write_config(tmp_path_factory.mktemp("changed"))
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch)
        run_pretended(load_config(path, [RECOLLECT]))
        yield path


@pytest.fixture
def config_file(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded.parent, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy" / recorded.name


def rows(config_file: Path, sql: str) -> list[tuple[Any, ...]]:
    answer = Warehouse(config_file.parent / "root").snapshot_query(sql)
    return [tuple(row.values()) for row in answer.to_pylist()]


def taken(config_file: Path) -> set[tuple[int, str]]:
    return set(rows(config_file, "SELECT stage, name FROM run_progress WHERE run_id = 'tiny'"))


def history(config_file: Path) -> list[list[tuple[Any, ...]]]:
    return [rows(config_file, f"FROM {name} ORDER BY ALL") for name in HISTORY]


def test_a_run_takes_the_steps_of_its_config_and_no_others(config_file: Path) -> None:
    assert taken(config_file) == set(places(load_config(config_file, [RECOLLECT])))
    assert {(2, "drift"), (2, "recollect_train"), (2, "recollect_validation")} < taken(config_file)


def test_of_fewer_stages_the_views_show_no_more(config_file: Path) -> None:
    before = history(config_file)
    record_run(load_config(config_file, [RECOLLECT, "stages=1"]), "running")
    assert rows(config_file, "SELECT stage FROM stage_summary WHERE run_id = 'tiny' ORDER BY 1") == [(0,), (1,)]
    observed = "SELECT max(stage) FROM prompt_difficulty_history WHERE run_id = 'tiny'"
    assert rows(config_file, observed) == [(1,)]
    assert (2, "report") not in taken(config_file)
    assert history(config_file) == before


def test_steps_of_a_kind_that_the_run_no_longer_takes_leave_it(config_file: Path) -> None:
    before = history(config_file)
    record_run(load_config(config_file), "running")
    assert {name for _, name in taken(config_file)}.isdisjoint({"drift", "recollect_train", "recollect_validation"})
    assert (2, "score") in taken(config_file)
    offline = "SELECT stage FROM prompt_difficulty_history WHERE run_id = 'tiny' AND phase = 'offline'"
    assert set(rows(config_file, offline)) == {(0,)}
    record_run(load_config(config_file, ["selection={type: random, alpha: 0.4}"]), "running")
    assert {name for _, name in taken(config_file)}.isdisjoint({"score", "rollouts_validation"})
    assert (2, "select") in taken(config_file)
    assert history(config_file) == before


def test_another_run_keeps_its_steps(config_file: Path) -> None:
    before = taken(config_file)
    record_run(load_config(config_file, ["name=other", "stages=1"]), "running")
    assert taken(config_file) == before


def test_a_run_that_goes_back_finds_its_steps_again(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, steps = taken(config_file), history(config_file)
    record_run(load_config(config_file, ["stages=1"]), "running")
    pretend(monkeypatch)
    run_pretended(load_config(config_file, [RECOLLECT]))
    assert taken(config_file) == before
    assert history(config_file) == steps
