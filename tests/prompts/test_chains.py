"""Chains: distinct, deterministic, evenly shared, and right by another way of reckoning."""

from __future__ import annotations

import re
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_cases import held_out_of

from pipeline_lib.config import ChainKind, ChainSource
from pipeline_lib.prompts.chains import read_chains, solution
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.records import Prompt
from pipeline_lib.rewards import get_verifier

KINDS: list[ChainKind] = list(get_args(ChainKind))
ALPHABET = {"plus": "+", "minus": "-", "times": "*", "max": "^", "mixed": "+-"}


def read(**options: object) -> list[Prompt]:
    return [prompt for _, prompt in read_chains(ChainSource.model_validate(options))]


def question(prompt: Prompt) -> str:
    return prompt.messages[0]["content"]


def reckon(expression: str) -> int:
    """Left to right by rewriting the first operation until none is left."""
    while match := re.match(r"(\d)([-+*^])(\d)", expression):
        a, symbol, b = match.groups()
        value = max(int(a), int(b)) if symbol == "^" else eval(f"{a}{symbol}{b}") % 10
        expression = f"{value}{expression[3:]}"
    return int(expression)


def test_the_worked_example() -> None:
    assert solution("3+5-2=?") == "3+58;8-26|6"
    assert solution("3-5=?") == "3-58|8"
    assert solution("3^5*7=?") == "3^55;5*75|5"


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True), seed=st.integers(0, 99))
def test_questions_and_solutions(kinds: list[ChainKind], seed: int) -> None:
    for prompt in read(kinds=kinds, lengths=[1, 2, 4, 6], count=40, seed=seed):
        kind, length = prompt.extra["kind"], prompt.extra["length"]
        text = question(prompt)
        assert re.fullmatch(rf"\d([{re.escape(ALPHABET[kind])}]\d){{{length}}}=\?", text)
        if kind == "mixed" and length >= 2:
            assert "+" in text and "-" in text
        worked, _, final = solution(text).rpartition("|")
        steps = worked.split(";")
        assert [step[1:3] for step in steps] == re.findall(r"[-+*^]\d", text)
        assert all(reckon(step[:3]) == int(step[3]) for step in steps)
        assert [step[0] for step in steps[1:]] == [step[3] for step in steps[:-1]]
        assert int(final) == reckon(text.removesuffix("=?")) == int(prompt.gold)


def test_a_solution_is_graded_right_and_another_wrong() -> None:
    for prompt in read(kinds=KINDS, lengths=[1, 3], count=50):
        verifier = get_verifier(prompt.verifier)
        assert verifier.gold_problem(prompt) is None
        assert verifier.grade(prompt, solution(question(prompt))).correct
        assert not verifier.grade(prompt, f"|{(int(prompt.gold) + 1) % 10}").correct


def test_the_count_is_shared_evenly() -> None:
    prompts = read(kinds=["plus", "max", "mixed"], lengths=[2, 3], count=602)
    cells = Counter((prompt.extra["kind"], prompt.extra["length"]) for prompt in prompts)
    assert list(cells.values()) == [101, 101, 100, 100, 100, 100]
    assert len({prompt.prompt_id for prompt in prompts}) == 602


def test_the_seed_decides() -> None:
    options = {"kinds": ["mixed", "times"], "lengths": [3], "count": 60}
    assert read(**options, seed=1) == read(**options, seed=1)
    assert read(**options, seed=1) != read(**options, seed=2)


@pytest.mark.parametrize(
    ("kinds", "lengths", "available"),
    [
        (["plus"], [1], 100),
        (["plus", "minus", "mixed"], [1], 200),
        (["mixed"], [2], 2000),
        (["mixed"], [1], 200),
    ],
)
def test_an_exhausted_cell_gives_all_it_has(kinds: list[str], lengths: list[int], available: int) -> None:
    prompts = read(kinds=kinds, lengths=lengths, count=9000)
    assert len({question(prompt) for prompt in prompts}) == len(prompts) == available


def test_ingest() -> None:
    held_out = held_out_of(val=[ChainSource(kinds=["plus"], lengths=[1], count=30, seed=1)])
    train = ChainSource(kinds=["plus", "minus"], lengths=[1], count=200)
    result = ingest([train], set_name="train", held_out=held_out)
    assert result.n_prompts == 170
    assert result.reject_counts == {"in_validation_or_evaluation_set": 30}
