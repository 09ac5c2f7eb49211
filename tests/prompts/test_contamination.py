"""A question of the pool that a held-out set asks as well is found by what it asks, and counted by set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prompt_cases import held_out_of, rejects_of

from pipeline_lib.config import FileSource
from pipeline_lib.prompts.contamination import question_key
from pipeline_lib.prompts.ingest import ingest

USER = {"role": "user", "content": "What is 1 + 1?"}


def source(path: Path, rows: list[Any], **options: Any) -> FileSource:
    path.write_text("\n".join(json.dumps({"prompt": prompt, "answer": "2"}) for prompt in rows))
    return FileSource(path=str(path), **options)


@pytest.mark.parametrize(
    ("train", "same"),
    [
        ("What is 1 + 1?", True),
        ("  What is\n1 +  1? ", True),
        ([{"role": "system", "content": "Be brief."}, USER], True),
        ("What is 1 + 1!", False),
        ([USER, {"role": "assistant", "content": "3"}, {"role": "user", "content": "Sure?"}], False),
        ([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, USER], False),
    ],
)
def test_what_counts_as_the_same_question(tmp_path: Path, train: Any, same: bool) -> None:
    held_out = held_out_of(val=[source(tmp_path / "val.jsonl", ["What is 1 + 1?"])])
    pool = source(tmp_path / "train.jsonl", [train, "Another?"])
    found = ingest([pool], set_name="train", held_out=held_out)
    assert found.contamination == ({"val": 1} if same else {})
    assert found.reject_counts == ({"in_validation_or_evaluation_set": 1} if same else {})


def test_a_suffix_hides_nothing(tmp_path: Path) -> None:
    held_out = held_out_of(val=[source(tmp_path / "val.jsonl", ["What is 1 + 1?"], suffix=" Use <answer>.")])
    pool = source(tmp_path / "train.jsonl", ["What is 1 + 1?", "b?"], suffix="\nBox the answer.")
    assert ingest([pool], set_name="train", held_out=held_out).n_prompts == 1


def test_each_set_is_counted_and_named(tmp_path: Path) -> None:
    val, evaluation = (source(tmp_path / f"{n}.jsonl", rows) for n, rows in [("v", ["a?", "b?"]), ("e", ["b?", "c?"])])
    held_out = held_out_of(val=[val], evaluation=[evaluation])
    found = ingest([source(tmp_path / "t.jsonl", ["a?", "b?", "b?", "c?", "d?"])], set_name="train", held_out=held_out)
    assert found.contamination == {"evaluation": 2, "val": 2}
    assert found.n_prompts == 1
    assert {row["row_index"]: row["detail"].split(" held out in ")[1] for row in rejects_of(found)} == {
        0: "val",
        1: "val, evaluation",
        2: "val, evaluation",
        3: "evaluation",
    }


def test_reported_only(tmp_path: Path) -> None:
    held_out = held_out_of(val=[source(tmp_path / "v.jsonl", ["a?"])])
    pool = source(tmp_path / "t.jsonl", ["a?", "b?"])
    found = ingest([pool], set_name="train", held_out=held_out, drop_held_out=False)
    assert found.contamination == {"val": 1}
    assert found.n_prompts == 2 and not found.reject_counts


def test_what_a_limit_does_not_draw_holds_nothing_out(tmp_path: Path) -> None:
    val = source(tmp_path / "v.jsonl", ["a?", "b?", "c?", "d?"], limit=1)
    found = ingest([source(tmp_path / "t.jsonl", list("abcd?"))], set_name="train", held_out=held_out_of(val=[val]))
    assert found.n_prompts == 5
    pool = source(tmp_path / "t.jsonl", ["a?", "b?", "c?", "d?"])
    assert ingest([pool], set_name="train", held_out=held_out_of(val=[val])).n_prompts == 3


def test_the_key_knows_roles() -> None:
    assert question_key([{"role": "user", "content": "a"}], "") != question_key(
        [{"role": "assistant", "content": "a"}], ""
    )


def test_prompts_that_differ_in_white_space_alone_are_counted_and_kept(tmp_path: Path) -> None:
    asked = ["What is 1 + 1?", "What is 1 +  1?", "  What is\n1 + 1?", "What is 2 + 2?", "What is 2 + 2?"]
    found = ingest([source(tmp_path / "train.jsonl", asked)], set_name="train", held_out=held_out_of())
    assert (found.n_prompts, found.n_duplicates, found.n_asked_again) == (4, 1, 2)


def test_a_prompt_that_was_left_out_is_asked_by_nobody(tmp_path: Path) -> None:
    asked = {"Is it a?": "1", "Is it a? ": "2", "Is it  a?": "1"}
    rows = [{"prompt": prompt.rstrip(), "answer": answer} for prompt, answer in asked.items()]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = ingest([FileSource(path=str(path))], set_name="train", held_out=held_out_of())
    assert (found.n_prompts, found.n_asked_again) == (1, 0)
