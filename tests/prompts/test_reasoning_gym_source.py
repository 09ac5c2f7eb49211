"""reasoning-gym as a source: deterministic, apart by seed, with examples, and fit for JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline_lib.config import ReasoningGymSource
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.prompt_set import PromptSet


def read(*tasks: dict[str, Any], **options: Any) -> PromptSet:
    source = ReasoningGymSource.model_validate({"tasks": tasks, **options})
    return ingest([source], set_name="train")


CHAIN_SUM = {"name": "chain_sum", "count": 20}


def test_prompts() -> None:
    result = read(CHAIN_SUM, {"name": "letter_counting", "count": 5})
    assert result.n_rows == 25 and not len(result.rejects)
    assert {p.data_source for p in result.prompts.values()} == {
        "reasoning_gym/chain_sum",
        "reasoning_gym/letter_counting",
    }
    for prompt in result.prompts.values():
        kept = json.loads(json.dumps(prompt.extra, allow_nan=False))
        assert kept == prompt.extra
        assert kept["entry"]["answer"] == prompt.gold
        assert prompt.messages == ({"role": "user", "content": kept["entry"]["question"]},)


def test_neighbouring_seeds_share_next_to_nothing() -> None:
    """In reasoning-gym entry i of seed s is entry 0 of seed s + i."""
    one, same, two = (read(CHAIN_SUM, seed=seed).prompts.keys() for seed in (0, 0, 1))
    assert list(one) == list(same)
    assert not one & two


def test_shots() -> None:
    tiny = {"name": "chain_sum", "count": 60, "config": {"max_terms": 2, "max_digits": 1}}
    result = read(tiny, shots=2)
    assert result.n_duplicates == 60 - result.n_prompts
    for prompt in result.prompts.values():
        assert [m["role"] for m in prompt.messages] == ["user", "assistant"] * 2 + ["user"]
        questions = [m["content"] for m in prompt.messages[::2]]
        assert len(set(questions)) == 3
        assert prompt.verifier_args == {"dataset": "chain_sum", "config": tiny["config"]}


def test_two_seeds_give_a_question_the_same_examples() -> None:
    tiny = {"name": "chain_sum", "count": 100, "config": {"max_terms": 2, "max_digits": 1}}
    one, two = (read(tiny, shots=2, seed=seed).prompts for seed in (0, 1))
    questions = [{p.messages[-1]["content"] for p in prompts.values()} for prompts in (one, two)]
    assert len(one.keys() & two.keys()) == len(questions[0] & questions[1]) > 0


def test_entries_without_an_answer_are_listed() -> None:
    with pytest.raises(ValueError, match="no_gold 3"):
        read({"name": "graph_color", "count": 3})


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ({"name": "chainsum", "count": 1}, "'chainsum': no such data set. Near names: chain_sum"),
        ({"name": "chain_sum", "count": 1, "config": {"terms": 3}}, "terms"),
        ({"name": "chain_sum", "count": 1, "config": {"min_terms": 9, "max_terms": 2}}, "is refused"),
        ({"name": "chain_sum", "count": 1, "config": {"seed": 3}}, "may not set seed"),
    ],
)
def test_bad_tasks(task: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        read(task)


def test_too_few_examples() -> None:
    with pytest.raises(ValueError, match="need 17 distinct examples"):
        read({"name": "lcm", "count": 1, "config": {"min_value": 2, "max_value": 3}}, shots=16)
