"""What each verifier takes for the answer, and what it says of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from grading import grade, prompt

from pipeline_lib.records import Verdict
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG


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
