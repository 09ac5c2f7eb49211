"""What each verifier takes for the answer, and what it says of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG


def prompt(gold: str, verifier: str, **args: Any) -> Prompt:
    return Prompt("test", ({"role": "user", "content": r"Put it in \boxed{34}."},), gold, verifier, args)


def grade(gold: str, completion: str, verifier: str, **args: Any) -> Verdict:
    return get_verifier(verifier).grade(prompt(gold, verifier, **args), completion)


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("3+58;8-26|6", RIGHT),
        ("|5|6", RIGHT),
        ("3+58|8", WRONG),
        ("6", UNPARSEABLE),
        ("3+58|", UNPARSEABLE),
        ("", UNPARSEABLE),
    ],
)
def test_exact_after_a_marker(completion: str, verdict: Verdict) -> None:
    assert grade("6", completion, "exact", marker="|") == verdict


def test_exact_without_a_marker() -> None:
    assert grade("new  york", " new\nyork ", "exact") == RIGHT
    assert grade("new york", "the answer is new york", "exact") == WRONG
    assert grade("new york", " \n", "exact") == UNPARSEABLE


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("#### 1,080 dollars, I think 5", RIGHT),
        ("#### nothing", UNPARSEABLE),
        (r"so \boxed{n = 1080} not 5", RIGHT),
        (r"1080 or \boxed{5}", WRONG),
        (r"\boxed{1080} or \boxed{5", UNPARSEABLE),
        ("5 and then $1,080.00.", RIGHT),
        ("no number", UNPARSEABLE),
    ],
)
def test_numeric(completion: str, verdict: Verdict) -> None:
    assert grade("1080", completion, "numeric", marker="####") == verdict


def test_numeric_is_exact_unless_told() -> None:
    assert grade("0.5", "1/2", "numeric") == RIGHT
    assert grade("0.1", "0.10000000000000000001", "numeric") == WRONG
    assert grade("0.1", "0.11", "numeric", tolerance=0.01) == RIGHT


@pytest.mark.parametrize(
    ("gold", "completion", "verdict"),
    [
        ("34", r"\boxed{34}" + " and so on" * 100, RIGHT),
        ("34", r"\boxed{34}, no, \boxed{35}", WRONG),
        ("34", r"\boxed{34}, no, \boxed{35", UNPARSEABLE),
        ("34", "34", UNPARSEABLE),
        ("34", "", UNPARSEABLE),
        ("34", r"#### 35, that is \boxed{34.0}", RIGHT),
        ("34", "#### 34 dollars.\nQuestion: 5?", RIGHT),
        ("34", "#### 34\n" + "and so on" * 100, RIGHT),
        ("180", r"\boxed{180}", RIGHT),
        ("1080", "####: $1,080", RIGHT),
        ("34", "#### 34\nAnswer: 35", RIGHT),
        ("34", "Answer: 35\nAnswer: $34$", RIGHT),
        ("0.5", r"\boxed{\frac{1}{2}}", RIGHT),
        ("-1", r"\boxed{−1}", RIGHT),
        (r"2\sqrt{3}", r"\fbox{\sqrt{12}}", RIGHT),
        ("x^2+2x+1", r"\boxed{(x+1)^2}", RIGHT),
        ("x^2+2x+1", r"\boxed{(x-1)^2}", WRONG),
        (r"\{1,2\}", r"\boxed{\{2, 1\}}", RIGHT),
        ("34", r"\boxed{\frac{}{)(}}", UNPARSEABLE),
        ("Paris", r"\boxed{Sirap}", WRONG),
        ("Paris", r"\boxed{\text{paris.}}", RIGHT),
        (r"\text{New York}", "Answer: new york.", RIGHT),
        ("east", r"\boxed{\text{seat}}", WRONG),
        ("ab", r"\boxed{ba}", RIGHT),
        ("x-y-z", r"\boxed{-z+x-y}", RIGHT),
    ],
)
def test_math(gold: str, completion: str, verdict: Verdict) -> None:
    assert grade(gold, completion, "math") == verdict


def test_an_answer_is_extracted_once() -> None:
    verifier, gold = get_verifier("math"), prompt("34", "math")
    answer = verifier.extract(gold, r"\boxed{34}")
    assert answer == "34"
    assert verifier.judge(gold, answer) == RIGHT


def test_a_thread_other_than_the_main_one_grades_alike() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(grade, r"\sqrt{12}", r"\boxed{2\sqrt{3}}", "math").result() == RIGHT


def test_a_right_answer_in_the_prompt_is_not_graded() -> None:
    assert grade("34", "I do not know", "math") == UNPARSEABLE


@pytest.mark.parametrize(
    ("gold", "verifier", "fine"),
    [
        ("34", "math", True),
        (r"\frac{1}{2}", "math", True),
        (r"\text{Monday}", "math", True),
        (")(", "math", False),
        ("1,080", "numeric", True),
        ("x", "numeric", False),
        ("6", "exact", True),
        (" ", "exact", False),
    ],
)
def test_golds(gold: str, verifier: str, fine: bool) -> None:
    assert (get_verifier(verifier).gold_problem(prompt(gold, verifier)) is None) == fine
