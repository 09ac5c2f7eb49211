"""The grader keeps its promises with verifiers that really hang, eat memory, crash and raise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading import prompt

from pipeline_lib.records import Verdict
from pipeline_lib.rewards import VERIFIERS, get_verifier, symbolic
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rewards.verifier import ERROR, RIGHT, TIMEOUT, UNPARSEABLE, WRONG


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Grader(time_limit=1.5, memory_limit_mb=64, workers=2) as grader,
    ):
        for class_name in ("Misbehaving", "Gentle", "Unstartable"):
            patch.setitem(VERIFIERS, class_name.lower(), f"misbehaving:{class_name}")
        yield grader


def test_unknown_verifier_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'chess'.*code, exact, math, multiple_choice, numeric, reasoning_gym"):
        get_verifier("chess")
    with Grader() as grader, pytest.raises(ValueError, match="chess"):
        grader.grade([(prompt("1", "chess"), "1")])


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("hang in Python", TIMEOUT),
        ("hang in C", TIMEOUT),
        ("eat", ERROR),
        ("crash", ERROR),
        ("raise", ERROR),
        ("nan", ERROR),
    ],
)
def test_a_bad_answer_has_no_effect_on_the_others(grader: Grader, answer: str, verdict: object) -> None:
    gold = prompt("34", "misbehaving")
    others = [(gold, "34" if i % 2 else f"{answer[0]}{i}") for i in range(20)]
    verdicts = grader.grade([*others[:7], (gold, answer), *others[7:]])
    assert verdicts.pop(7) == verdict
    assert verdicts == [RIGHT if i % 2 else WRONG for i in range(20)]


def test_many_bad_answers_at_once(grader: Grader) -> None:
    gold = prompt("34", "misbehaving")
    answers = ["hang in Python 1", "crash 1", "34", "eat 1", "hang in C 2", "raise 1", "35", "", "crash 2"]
    expected = [TIMEOUT, ERROR, RIGHT, ERROR, TIMEOUT, ERROR, WRONG, UNPARSEABLE, ERROR]
    assert grader.grade([(gold, answer) for answer in answers]) == expected


def test_ungraded_is_never_a_reward_of_zero() -> None:
    assert TIMEOUT.reward is None and ERROR.reward is None


def test_the_same_answer_is_judged_once(grader: Grader, tmp_path: Path) -> None:
    gold = prompt("cached", "misbehaving")
    told = tmp_path / "told"
    answer = f"tell {told} and think"
    assert grader.grade([(gold, answer)] * 8) == [WRONG] * 8
    assert grader.grade([(gold, answer)]) == [WRONG]
    assert told.read_text() == "judged\n"


def test_a_timeout_is_judged_once_a_batch_and_again_in_the_next(grader: Grader, tmp_path: Path) -> None:
    gold = prompt("not cached", "misbehaving")
    told = tmp_path / "told"
    answer = f"tell {told} and hang in Python"
    assert grader.grade([(gold, answer)] * 8) == [TIMEOUT] * 8
    assert told.read_text() == "judged\n"
    assert grader.grade([(gold, answer)]) == [TIMEOUT]
    assert told.read_text() == "judged\n" * 2


def test_another_gold_or_other_args_are_another_question(grader: Grader) -> None:
    one = prompt("1", "misbehaving")
    two = prompt("2", "misbehaving")
    assert grader.grade([(one, "1"), (two, "1"), (two, "2")]) == [RIGHT, WRONG, RIGHT]


def test_an_exception_in_this_process_is_an_error_too(grader: Grader) -> None:
    gold = prompt("34", "gentle")
    assert grader.grade([(gold, "34"), (gold, "raise"), (gold, "33")]) == [RIGHT, ERROR, WRONG]


def test_processes_that_cannot_start_are_an_exception(grader: Grader) -> None:
    with pytest.raises(RuntimeError, match="verifier processes do not work"):
        grader.grade([(prompt("34", "unstartable"), "34")])


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_is_a_number_or_none(reward: float) -> None:
    with pytest.raises(ValueError, match=f"reward={reward}: must be finite, or None"):
        Verdict(reward, correct=False)


def test_a_math_verify_that_reads_nothing_is_told_instead_of_grading_all_answers_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise Exception("Could not deserialize ATN with version 3 (expected 4).")

    symbolic.parse.cache_clear()
    monkeypatch.setattr("math_verify.parse", broken)
    with pytest.raises(RuntimeError, match="math-verify cannot tell"):
        get_verifier("math").warm_up()
    symbolic.parse.cache_clear()


def test_a_real_answer_that_makes_math_verify_hang() -> None:
    gold = prompt("34", "math")
    answers = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{2 \cdot 17}", r"\boxed{35+x}", "34"]
    with Grader(time_limit=1.5, workers=1) as grader:
        assert grader.grade([(gold, answer) for answer in answers]) == [TIMEOUT, RIGHT, WRONG, UNPARSEABLE]


def test_plain_numbers_start_no_process() -> None:
    with Grader() as grader:
        gold = prompt("1080", "math")
        assert grader.grade([(gold, "#### 1,080"), (gold, r"\boxed{1081}")]) == [RIGHT, WRONG]
        assert not grader._pools
