"""Re-entry: what is recorded complete is not done again; what is not is marked, and done again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from errno import ENOSPC
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from step_cases import FileStep, attempts_of, run_config, shard_row

from tasks.errors import StepFailed
from tasks.progress import use_reporter
from tasks.step import Work, Workshop, perform, recorded
from warehouse import Warehouse, WarehouseError


@pytest.fixture
def step(tmp_path: Path) -> FileStep:
    return FileStep(run_config(tmp_path / "root"), 1, output=tmp_path / "output")


def row_of(step: FileStep) -> dict[str, Any]:
    rows = Warehouse(step.root).snapshot_query("SELECT * FROM steps WHERE fingerprint = $1", [step.fingerprint])
    return rows.to_pylist()[0]


def shards(step: FileStep) -> list[int]:
    sql = "SELECT shard_index FROM shards WHERE fingerprint = $1 ORDER BY 1"
    return Warehouse(step.root).query(sql, [step.fingerprint])["shard_index"].to_pylist()


class Ear:
    """A reporter that remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def start(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        self.heard.append(("start", label))

    def advance(self, n: int = 1, **facts: str | float) -> None:
        self.heard.append(("advance", n))

    def finish(self, outcome: str) -> None:
        self.heard.append(("finish", outcome))

    def say(self, message: str) -> None:
        self.heard.append(("say", message))


@dataclass(frozen=True)
class Failing(FileStep):
    """Records a shard as it goes, and fails as long as `output` is not there."""

    name: ClassVar[str] = "failing"
    error: ClassVar[BaseException] = StepFailed("the disk is [full]")

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        at.record({"shards": shard_row(7)})
        if not self.output.exists():
            raise self.error
        return super().work(at)


@dataclass(frozen=True)
class Interrupted(Failing):
    name: ClassVar[str] = "interrupted"
    error: ClassVar[BaseException] = KeyboardInterrupt()


@dataclass(frozen=True)
class BadRows(FileStep):
    """Hands back rows that the warehouse refuses, beside good ones."""

    name: ClassVar[str] = "bad_rows"
    bad: ClassVar[pa.Table] = pa.table({"no_such_column": [1]})

    def work(self, at: Workshop) -> Work:
        return Work(super().work(at).outputs, {"shards": shard_row(0), "evaluations": self.bad})


@dataclass(frozen=True)
class NewContract(FileStep):
    contract: ClassVar[int] = 2


@dataclass(frozen=True)
class OtherName(FileStep):
    name: ClassVar[str] = "other_name"


def test_a_completed_step_is_found_and_not_run_again(step: FileStep) -> None:
    first = perform(step)
    assert not first.cached and first.outputs == {"path": str(step.output)}
    ear = Ear()
    with use_reporter(ear):
        second = perform(step)
    assert second.cached
    assert (second.fingerprint, second.outputs) == (first.fingerprint, first.outputs)
    assert ear.heard == [("start", "stage 1/2 · file step"), ("finish", "cached")]
    assert len(attempts_of(step)) == 1
    row = row_of(step)
    assert (row["status"], row["attempts"], row["error"]) == ("completed", 1, None)
    assert row["started_at"] <= row["finished_at"]


def test_another_run_finds_the_step_too_and_is_recorded_as_its_user(step: FileStep) -> None:
    perform(step)
    other = replace(step, run=run_config(step.root, name="other", stages=5), stage=3)
    assert perform(other).cached
    users = Warehouse(step.root).query("SELECT run_id, stage, name, fingerprint FROM run_steps ORDER BY run_id")
    assert users.to_pylist() == [
        {"run_id": "other", "stage": 3, "name": "file_step", "fingerprint": step.fingerprint},
        {"run_id": "run", "stage": 1, "name": "file_step", "fingerprint": step.fingerprint},
    ]
    assert len(attempts_of(step)) == 1


CHANGES: dict[str, Callable[[FileStep], FileStep]] = {
    "a setting": lambda step: replace(step, setting=1),
    "an input": lambda step: replace(step, read={"policy": "abc"}),
    "the contract": lambda step: NewContract(step.run, step.stage, output=step.output),
    "the name": lambda step: OtherName(step.run, step.stage, output=step.output),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_fingerprint_changes_with_what_the_result_depends_on(
    step: FileStep, change: Callable[[FileStep], FileStep]
) -> None:
    perform(step)
    changed = change(step)
    assert changed.fingerprint != step.fingerprint
    assert recorded(changed) is None
    assert not perform(changed).cached
    assert recorded(step) is not None  # both are remembered


def test_the_fingerprint_does_not_change_with_what_the_result_does_not_depend_on(step: FileStep) -> None:
    elsewhere = replace(
        step, run=run_config(step.root.parent / "elsewhere", name="other", stages=9), stage=2, seconds=3.0
    )
    assert elsewhere.fingerprint == step.fingerprint
    one, two = replace(step, read={"a": "1", "b": "2"}), replace(step, read={"b": "2", "a": "1"})
    assert one.fingerprint == two.fingerprint


def test_seeds_are_the_same_in_each_attempt_and_differ_by_part_and_run_seed(step: FileStep) -> None:
    perform(step)
    step.output.unlink()
    perform(step)
    first, second = attempts_of(step)
    assert first == second == {"seed": step.seed("part", 1)}
    reseeded = replace(step, run=run_config(step.root, seed=1))
    seeds = {step.seed("part", 1), step.seed("part", 2), step.seed(), reseeded.seed("part", 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_lost_outputs_are_made_again(step: FileStep) -> None:
    perform(step)
    step.output.unlink()
    assert recorded(step) is None
    ear = Ear()
    with use_reporter(ear):
        assert not perform(step).cached
    said = f"stage 1/2 · file step was complete, but its {step.output} is gone or damaged; what is lost is made again."
    assert ("say", said) in ear.heard
    assert step.output.exists()
    assert row_of(step)["attempts"] == 2
    assert perform(step).cached


def test_a_failed_step_is_marked_and_run_again(step: FileStep) -> None:
    failing = Failing(step.run, 1, output=step.output)
    ear = Ear()
    with use_reporter(ear), pytest.raises(StepFailed):
        perform(failing)
    assert ear.heard[-1] == ("finish", "failed")
    row = row_of(failing)
    assert (row["status"], row["error"]) == ("failed", "StepFailed: the disk is [full]")
    assert row["outputs"] is None and row["finished_at"] is not None
    assert shards(failing) == [7]  # what it recorded as it went stays
    step.output.write_text("mended")
    assert not perform(failing).cached
    row = row_of(failing)
    assert (row["status"], row["error"], row["attempts"]) == ("completed", None, 2)
    assert shards(failing) == [0, 7]


def test_an_interrupted_step_is_marked_and_the_interrupt_goes_on(step: FileStep) -> None:
    interrupted = Interrupted(step.run, 1, output=step.output)
    with pytest.raises(KeyboardInterrupt):
        perform(interrupted)
    row = row_of(interrupted)
    assert (row["status"], row["error"]) == ("failed", "interrupted")
    assert recorded(interrupted) is None


def test_a_full_disk_is_told_in_words_also_where_the_warehouse_cannot_be_written(
    step: FileStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class OnAFullDisk(FileStep):
        def work(self, at: Workshop) -> Work:
            monkeypatch.setattr(Warehouse, "write", full)
            full()
            raise AssertionError

    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    ear = Ear()
    failing = OnAFullDisk(step.run, 1, output=step.output)
    with use_reporter(ear), pytest.raises(StepFailed, match=f"the disk of {step.root} is full; make room on it"):
        perform(failing)
    assert [what for what, _ in ear.heard[-2:]] == ["finish", "say"]
    assert "the warehouse could not be told: [Errno 28]" in ear.heard[-1][1]
    monkeypatch.undo()
    assert row_of(failing)["status"] == "running"
    perform(step)
    assert row_of(step)["status"] == "completed"


def test_rows_and_completion_are_one_transaction(step: FileStep) -> None:
    bad = BadRows(step.run, 1, output=step.output)
    with pytest.raises(WarehouseError, match="no_such_column"):
        perform(bad)
    assert shards(bad) == []
    assert recorded(bad) is None
    row = row_of(bad)
    assert row["status"] == "failed"
    assert "no_such_column" in row["error"]


def test_rows_bear_the_fingerprint_of_their_step_but_for_prompts(step: FileStep) -> None:
    @dataclass(frozen=True)
    class Ingest(FileStep):
        def work(self, at: Workshop) -> Work:
            names = ("prompt_id", "data_source", "gold", "verifier")
            prompt = dict.fromkeys(names, "x") | {"messages": "[]", "verifier_args": "{}", "extra": "{}"}
            tables = {"prompts": pa.Table.from_pylist([prompt]), "shards": shard_row(3)}
            return Work(super().work(at).outputs, tables)

    ingest = Ingest(step.run, 1, output=step.output)
    perform(ingest)
    warehouse = Warehouse(step.root)
    assert warehouse.snapshot_query("SELECT prompt_id FROM prompts")["prompt_id"].to_pylist() == ["x"]
    found = warehouse.snapshot_query("SELECT fingerprint, shard_index FROM shards").to_pylist()
    assert found == [{"fingerprint": ingest.fingerprint, "shard_index": 3}]


def test_readers_see_a_step_as_soon_as_it_begins_and_as_soon_as_it_ends(step: FileStep) -> None:
    @dataclass(frozen=True)
    class Watched(FileStep):
        def work(self, at: Workshop) -> Work:
            assert row_of(self)["status"] == "running"
            return super().work(at)

    watched = Watched(step.run, 1, output=step.output)
    perform(watched)
    assert row_of(watched)["status"] == "completed"
