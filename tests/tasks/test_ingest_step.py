"""Ingest into the warehouse: piece by piece, completed after a kill, unchanged when done again."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from pipeline_lib.config import FileSource, Prompts, RunConfig
from pipeline_lib.prompts import prompt_set
from tasks import prompt_rows, prompts
from tasks.errors import StepFailed
from tasks.locks import one_ingest_at_a_time
from tasks.progress import LogReporter, use_reporter
from tasks.prompt_rows import ingest_data, load_prompts
from tasks.prompts import IngestPrompts
from tasks.step import Done, perform
from warehouse import Warehouse

TABLES = ("prompts", "prompt_sources", "prompt_rejects")


class Listener(LogReporter):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def source(path: Path, questions: list[str]) -> FileSource:
    path.write_text("\n".join(json.dumps({"question": text, "answer": "1" if text else ""}) for text in questions))
    return FileSource(path=str(path))


def contents(root: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: Warehouse(root).query(f"FROM {name} ORDER BY ALL").to_pylist() for name in TABLES}


@pytest.fixture
def ingest_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A step on a pool of 6 rows whose tokens are characters, 5 of them a prompt at most."""
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda path: None)
    monkeypatch.setattr("pipeline_lib.policy.encode_messages", lambda tokenizer, turns: list(turns[-1]["content"]))
    monkeypatch.setattr(prompt_rows, "PIECE", 2)
    sets = {
        "train": [source(tmp_path / "pool.jsonl", ["a?", "b  ?", "too long?", "c?", "", "a?"])],
        "validation": {"v": [source(tmp_path / "v.jsonl", ["b ?"])]},
        "evaluation": {"e": [source(tmp_path / "e.jsonl", ["e?"])]},
    }

    def step(contamination: str = "drop", max_prompt_tokens: int = 5) -> IngestPrompts:
        run = RunConfig.model_validate(
            {
                "name": "run",
                "root": str(tmp_path / "root"),
                "stages": 1,
                "prompts": Prompts(**sets, contamination=contamination),  # type: ignore[arg-type]
                "generation": {"max_prompt_tokens": max_prompt_tokens},
            }
        )
        return IngestPrompts(run, 0, Done("p", {"policy_id": "p", "path": "nowhere"}, cached=False))

    return step


def test_a_step_counts_what_it_kept_and_left_out(ingest_step: Any, tmp_path: Path) -> None:
    listener = Listener()
    with use_reporter(listener):
        done = perform(ingest_step())
    assert done.outputs["sets"]["train/train"] == {
        "rows": 6,
        "prompts": 2,
        "duplicates": 1,
        "asked_again": 0,
        "rejects": {"no_prompt": 1, "in_validation_or_evaluation_set": 1, "prompt_too_long": 1},
        "contamination": {"validation/v": 1},
    }
    assert listener.said[-2:] == [
        "train: 0:pool.jsonl is read as question_answer (question, answer (the gold itself, no ####))",
        "1 prompts of the pool also stand in validation/v: left out.",
    ]
    rejects = Warehouse(tmp_path / "root").query("SELECT * FROM prompt_rejects ORDER BY row_index").to_pylist()
    assert [(row["row_index"], row["reason"]) for row in rejects] == [
        (1, "in_validation_or_evaluation_set"),
        (2, "prompt_too_long"),
        (4, "no_prompt"),
    ]
    assert rejects[1]["detail"].endswith("has 9 tokens, the limit is 5")


def test_a_set_whose_prompts_are_all_too_long_fails_and_says_by_how_much(ingest_step: Any) -> None:
    with pytest.raises(
        StepFailed, match=r"set 'v': every one of its 1 prompts .*max_prompt_tokens=2 .* shortest has 3"
    ):
        perform(ingest_step(max_prompt_tokens=2))


def test_contamination_is_only_reported_where_the_config_says_so(ingest_step: Any) -> None:
    assert ingest_step("report").fingerprint != ingest_step("drop").fingerprint
    counts = perform(ingest_step("report")).outputs["sets"]["train/train"]
    assert counts["contamination"] == {"validation/v": 1} and counts["prompts"] == 3


def test_an_ingest_that_was_killed_between_two_pieces_is_completed(
    ingest_step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(ingest_step())
    expected = contents(tmp_path / "root")
    (tmp_path / "root").rename(tmp_path / "whole")
    written = 0

    def set_tables(*args: Any) -> Any:
        nonlocal written
        for tables in prompt_rows.set_tables(*args):
            if written == 5:
                raise ValueError("killed")
            written += 1
            yield tables

    with monkeypatch.context() as killed:
        killed.setattr(prompts, "set_tables", set_tables)
        with pytest.raises(StepFailed, match="killed"):
            perform(ingest_step())
    half = contents(tmp_path / "root")
    assert half != expected and half["prompts"]
    perform(ingest_step())
    assert contents(tmp_path / "root") == expected


def test_a_run_grades_by_its_own_golds_whatever_others_ingest(ingest_step: Any, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "root")
    done = perform(ingest_step())
    assert perform(ingest_step()).cached
    corrected = tmp_path / "corrected" / "pool.jsonl"  # a file's name is its data source, so the prompt is the same
    corrected.parent.mkdir()
    corrected.write_text('{"question": "a?", "answer": "2"}')
    ingest_data(warehouse, FileSource(path=str(corrected)), print)
    assert [prompt.gold for prompt in load_prompts(warehouse, done, "validation")] == ["1"]
    with pytest.raises(ValueError, match=r"some train prompts have another gold.* start the run again"):
        load_prompts(warehouse, done, "train")
    listener = Listener()
    with use_reporter(listener):
        again = perform(ingest_step())
    assert "record of what grades the train prompts is gone" in listener.said[0]
    assert not again.cached and again.outputs == done.outputs
    assert {prompt.gold for prompt in load_prompts(warehouse, again, "train")} == {"1"}


def test_nobody_changes_golds_between_their_writing_and_the_note_of_them(ingest_step: Any, tmp_path: Path) -> None:
    warehouse, ended = Warehouse(tmp_path / "root"), Event()
    data = source(tmp_path / "other.jsonl", ["a?"])
    other = Thread(target=lambda: (ingest_data(warehouse, data, print), ended.set()))
    with one_ingest_at_a_time(warehouse.root):
        other.start()
        assert not ended.wait(0.5) and not warehouse.path.exists()
    other.join()
    assert ended.is_set() and len(contents(warehouse.root)["prompts"]) == 1


def test_sets_of_a_run_agree_on_what_grades_a_prompt(ingest_step: Any, tmp_path: Path) -> None:
    step = ingest_step()
    another = FileSource(path=str(tmp_path / "v.jsonl"), verifier="exact")
    step.run.prompts.evaluation["e"] = [another]
    with pytest.raises(StepFailed, match=r"graded by \('1', 'exact', '{}'\) in set 'e', by \('1', 'math', .* in 'v'"):
        perform(step)


def test_the_format_is_said_before_anything_is_written(tmp_path: Path) -> None:
    data, warehouse = source(tmp_path / "a.jsonl", ["a?", "b?"]), Warehouse(tmp_path / "root")
    seen: list[tuple[str, bool]] = []
    ingest_data(warehouse, data, lambda sentence: seen.append((sentence, warehouse.path.exists())))
    assert seen == [("file: 0:a.jsonl is read as question_answer (question, answer (the gold itself, no ####))", False)]


def test_ingesting_again_changes_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, warehouse = source(tmp_path / "a.jsonl", ["a?", "b?", "", "a?", "c?"]), Warehouse(tmp_path / "root")
    monkeypatch.setattr(prompt_rows, "PIECE", 2)
    _, known = ingest_data(warehouse, data, print)
    assert not known
    before, bytes_before = contents(warehouse.root), warehouse.path.read_bytes()
    found, known = ingest_data(warehouse, data, print)
    assert known and found.n_rows == 5
    assert contents(warehouse.root) == before and warehouse.path.read_bytes() == bytes_before


def test_half_an_ingest_is_not_taken_for_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, warehouse = source(tmp_path / "a.jsonl", ["a?", "b?", "", "a?", "c?"]), Warehouse(tmp_path / "root")
    monkeypatch.setattr(prompt_rows, "PIECE", 2)
    monkeypatch.setattr(prompt_set, "ROWS_BATCH", 2)
    ingest_data(warehouse, data, print)
    whole = contents(warehouse.root)
    real, count = Warehouse.write, 0

    def write(self: Warehouse, *args: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        real(self, *args, **options)

    other = Warehouse(tmp_path / "other")
    with monkeypatch.context() as killed:
        killed.setattr(Warehouse, "write", write)
        with pytest.raises(KeyboardInterrupt):
            ingest_data(other, data, print)
    assert 0 < len(contents(other.root)["prompt_sources"]) < len(whole["prompt_sources"])
    _, known = ingest_data(other, data, print)
    assert not known and contents(other.root) == whole
