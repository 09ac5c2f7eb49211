"""Ingest merges duplicates, leaves out conflicts, lists every row, and is deterministic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prompt_cases import held_out_of, rejects_of, rows_of, trl_file, write

from pipeline_lib.config import ChainSource, FileSource
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.sources import source_identity


def test_duplicates_point_to_the_merged_prompt(tmp_path: Path) -> None:
    one = trl_file(tmp_path / "one.jsonl", [("a", "1"), ("b", "2"), ("a", "1.0")])
    two = trl_file(tmp_path / "two.jsonl", [("b", "2")])
    result = ingest([one, two], set_name="train")
    assert (result.n_rows, result.n_prompts, result.n_duplicates) == (4, 2, 2)
    a, b = result.prompts
    assert [(row["source"], row["row_index"], row["prompt_id"]) for row in rows_of(result)] == [
        ("0:one.jsonl", 0, a),
        ("0:one.jsonl", 1, b),
        ("0:one.jsonl", 2, a),
        ("1:two.jsonl", 0, b),
    ]


def test_a_prompt_with_two_golds_is_dropped_with_all_its_rows(tmp_path: Path) -> None:
    one = trl_file(tmp_path / "one.jsonl", [("a", "1"), ("a", "1"), ("b", "2")])
    two = trl_file(tmp_path / "two.jsonl", [("a", "3")])
    result = ingest([one, two], set_name="train")
    assert [prompt.gold for prompt in result.prompts.values()] == ["2"]
    assert result.reject_counts == {"conflicting_gold": 3}
    assert {(reject["source"], reject["row_index"]) for reject in rejects_of(result)} == {
        ("0:one.jsonl", 0),
        ("0:one.jsonl", 1),
        ("1:two.jsonl", 0),
    }
    assert "'1', '3'" in rejects_of(result)[0]["detail"]


def test_an_unparseable_gold_is_no_conflict(tmp_path: Path) -> None:
    result = ingest([trl_file(tmp_path / "a.jsonl", [("a", ")("), ("a", "1"), ("a", ")(")])], set_name="train")
    assert result.n_prompts == 1
    assert result.reject_counts == {"unparseable_gold": 2}


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    source = trl_file(tmp_path / "a.jsonl", [(f"{i % 30}?", str(i % 30)) for i in range(50)] + [("", "1")])
    result = ingest([source.model_copy(update={"limit": 10})], set_name="train")
    assert result.n_prompts == 10
    assert result.n_rows == 51 == len(rows_of(result)) + len(rejects_of(result)) + result.n_not_drawn
    assert {row["prompt_id"] for row in rows_of(result)} == set(result.prompts)


def test_the_limit_is_drawn_by_seed_after_merging(tmp_path: Path) -> None:
    source = trl_file(tmp_path / "a.jsonl", [(f"{i % 30}?", str(i % 30)) for i in range(50)])

    def drawn(seed: int, limit: int = 10) -> list[str]:
        options = {"limit": limit, "seed": seed}
        return list(ingest([source.model_copy(update=options)], set_name="train").prompts)

    assert drawn(0) == drawn(0) != drawn(1)
    assert len(drawn(0, limit=30)) == len(drawn(0, limit=99)) == 30


def test_the_limit_of_one_source_does_not_bind_another(tmp_path: Path) -> None:
    one = trl_file(tmp_path / "one.jsonl", [("a", "1"), ("b", "2")]).model_copy(update={"limit": 1})
    two = trl_file(tmp_path / "two.jsonl", [("a", "1"), ("b", "2"), ("c", "3")])
    assert ingest([one, two], set_name="train").n_prompts == 3


def test_sources_of_different_columns_make_one_set(tmp_path: Path) -> None:
    one = trl_file(tmp_path / "one.jsonl", [("a", "1")])
    info: list[Any] = [{"index": 3}, {"index": "9a-b", "deep": {"n": [1]}}, None]
    rows = [
        {"data_source": "x", "prompt": f"{i}?", "reward_model": {"ground_truth": "1"}, "extra_info": extra}
        for i, extra in enumerate(info)
    ]
    two = FileSource(path=str(write(tmp_path / "two.jsonl", rows)))
    said: list[str] = []
    result = ingest([one, two], set_name="train", say=said.append)
    assert [prompt.extra for prompt in result.prompts.values()] == [{}, info[0], info[1], {}]
    assert [sentence.split(" (")[0] for sentence in said] == [
        "train: 0:one.jsonl is read as trl",
        "train: 1:two.jsonl is read as verl",
    ]


def test_a_prompt_a_hundred_times_over_is_one(tmp_path: Path) -> None:
    result = ingest([trl_file(tmp_path / "a.jsonl", [("a", "1"), ("b", "2")] * 100)], set_name="train")
    assert (result.n_rows, result.n_prompts, result.n_duplicates) == (200, 2, 198)


def test_held_out_prompts_are_excluded(tmp_path: Path) -> None:
    held_out = held_out_of(val=[trl_file(tmp_path / "val.jsonl", [("a", "1")])])
    source = trl_file(tmp_path / "train.jsonl", [("a", "1"), ("b", "2"), ("a", "1")])
    result = ingest([source], set_name="train", held_out=held_out)
    assert [prompt.gold for prompt in result.prompts.values()] == ["2"]
    assert result.reject_counts == {"in_validation_or_evaluation_set": 2}


def test_an_empty_set_is_an_error_with_counts(tmp_path: Path) -> None:
    source = trl_file(tmp_path / "a.jsonl", [("", "1"), ("a", ""), ("b", "")])
    with pytest.raises(ValueError, match=r"'train'.* 3 rows .*0:a\.jsonl.*no_gold 2, no_prompt 1"):
        ingest([source], set_name="train")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="0 rows"):
        ingest([FileSource(path=str(tmp_path / "empty.jsonl"))], set_name="train")


def test_identity_is_content_not_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one = trl_file(tmp_path / "a.jsonl", [("a", "1")])
    moved = trl_file(tmp_path / "elsewhere" / "a.jsonl", [("a", "1")])
    changed = trl_file(tmp_path / "b.jsonl", [("a", "2")])
    assert source_identity(one) == source_identity(moved)
    others = [changed, one.model_copy(update={"suffix": "!"}), one.model_copy(update={"limit": 1})]
    assert len({source_identity(source) for source in [one, *others]}) == 4
    with pytest.raises(ValueError, match="no such file"):
        source_identity(FileSource(path=str(tmp_path / "missing.jsonl")))


def test_identity_of_a_generator_is_its_config() -> None:
    source = ChainSource(kinds=["plus"], lengths=[2], count=5)
    assert source_identity(source) == source_identity(source.model_copy())
    assert source_identity(source) != source_identity(source.model_copy(update={"seed": 1}))
