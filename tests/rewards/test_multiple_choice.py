"""A letter is a letter however it is dressed, and a word that begins with one is none."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.multiple_choice import letter
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG

DRESSES = ["{}", "({})", "[{}]", "{}.", "{})", "{}:", "**{}**", "({}) Paris", "{}) a cat", "{}. Any text, B", "${}$"]
DRESSES += [r"\text{{{}}}", r"\textbf{{({})}}", "option {}", "The answer is ({})", "Choice {}.", "({}).", " {} \n"]


def prompt(gold: str, **args: Any) -> Prompt:
    return Prompt("test", ({"role": "user", "content": "Answer: A"},), gold, "multiple_choice", args)


def grade(gold: str, completion: str, **args: Any) -> Verdict:
    return get_verifier("multiple_choice").grade(prompt(gold, **args), completion)


@given(st.sampled_from(string.ascii_letters), st.sampled_from(DRESSES))
def test_a_dressed_letter(name: str, dress: str) -> None:
    assert letter(dress.format(name)) == name.upper()


@pytest.mark.parametrize(
    "text", ["", "Paris", "A cat", "AB", "A or B", "A, B", "(A) or (B)", "7", "(7)", "()", "-A", "I think so"]
)
def test_what_is_no_letter(text: str) -> None:
    assert letter(text) is None


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("B", RIGHT),
        ("(b)", RIGHT),
        ("C", WRONG),
        (r"A? no: \boxed{B}", RIGHT),
        (r"\boxed{B} \boxed{\text{C}}", WRONG),
        (r"B \boxed{", UNPARSEABLE),
        ("First A.\nAnswer: (B) Rome", RIGHT),
        ("**Answer:** B", RIGHT),
        ("Answer: B\nAnswer: C", WRONG),
        ("I think it is B", UNPARSEABLE),
        ("Rome", UNPARSEABLE),
        ("", UNPARSEABLE),
    ],
)
def test_completions(completion: str, verdict: Verdict) -> None:
    for gold in ("B", "(B)", "b. Rome"):
        assert grade(gold, completion) == verdict


def test_a_choice_by_its_text() -> None:
    choices = ["Paris", "New  York", "A"]
    assert grade("New York", r"\boxed{B}", choices=choices) == RIGHT
    assert grade("B", "Answer: new york", choices=choices) == RIGHT
    assert grade("B", "Answer: Paris", choices=choices) == WRONG
    assert grade("B", "Answer: Rome", choices=choices) == UNPARSEABLE


def test_golds() -> None:
    verifier = get_verifier("multiple_choice")
    assert verifier.gold_problem(prompt("B")) is None
    assert "'Rome'" in (verifier.gold_problem(prompt("Rome")) or "")
    assert verifier.normal_gold("(b)") == verifier.normal_gold("B")
