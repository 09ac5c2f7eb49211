"""avg@k and pass@k against enumeration of every subset and hand-worked groups."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.evaluation import Metric, evaluate_groups, pass_at_k
from pipeline_lib.records import RolloutGroup, Trajectory


def group(prompt_id: str, corrects: list[bool | None]) -> RolloutGroup:
    """None is a completion that could not be graded."""
    return RolloutGroup(
        prompt_id,
        tuple(
            Trajectory(prompt_id, i, (1,), (2,), (-0.5,), "stop", "", None, False, "timeout")
            if correct is None
            else Trajectory(prompt_id, i, (1,), (2,), (-0.5,), "stop", "", float(correct), correct, "ok")
            for i, correct in enumerate(corrects)
        ),
    )


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(corrects: list[bool], k: int) -> None:
    k = min(k, len(corrects))
    subsets = list(combinations(corrects, k))
    expected = Fraction(sum(any(s) for s in subsets), len(subsets))
    assert pass_at_k(len(corrects), sum(corrects), k) == float(expected)


def test_pass_at_k_of_a_thousand_completions() -> None:
    assert pass_at_k(1000, 0, 500) == 0.0
    assert pass_at_k(1000, 1000, 1) == 1.0
    assert pass_at_k(1000, 501, 500) == 1.0
    assert pass_at_k(1000, 7, 1) == 7 / 1000
    assert pass_at_k(1000, 1, 400) == 400 / 1000
    # 1 - Π (1 - k/i) over i = n-c+1..n, the product form of the same number
    product = math.prod(1 - 100 / i for i in range(1000 - 12 + 1, 1001))
    assert pass_at_k(1000, 12, 100) == pytest.approx(1 - product, rel=1e-12)


@given(st.integers(1, 1000), st.data())
def test_pass_at_k_rises_with_k(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    assert 0.0 <= pass_at_k(n, c, 1) <= pass_at_k(n, c, k) <= 1.0


def test_two_prompts_by_hand() -> None:
    groups = [group("a", [True, False, False, False]), group("b", [True, True, False, False])]
    avg, pass_1, pass_2 = evaluate_groups(groups, [2, 1, 2])
    # 1/4 and 1/2: mean 3/8, sample std sqrt(2)/8, standard error 1/8
    assert avg == Metric("avg", 4, 0.375, pytest.approx(0.125), 2)
    assert pass_1 == Metric("pass", 1, 0.375, pytest.approx(0.125), 2)
    # 1 - 3/6 = 1/2 and 1 - 1/6 = 5/6
    assert pass_2 == Metric("pass", 2, pytest.approx(2 / 3), pytest.approx(1 / 6), 2)


def test_ungraded_completions_are_left_out_of_n() -> None:
    groups = [group("a", [True, None, None, False]), group("b", [None] * 4), group("c", [True] * 4)]
    avg, pass_1, pass_4 = evaluate_groups(groups, [1, 4])
    assert avg == Metric("avg", 4, 0.75, pytest.approx(0.25), 2)
    assert pass_1 == Metric("pass", 1, 0.75, pytest.approx(0.25), 2)
    assert pass_4 == Metric("pass", 4, 1.0, None, 1)


def test_nothing_graded_reports_nothing() -> None:
    assert evaluate_groups([], [1]) == []
    assert evaluate_groups([group("a", [None, None])], [1]) == []
    assert evaluate_groups([group("a", [True])], [2]) == [Metric("avg", 1, 1.0, None, 1)]


@pytest.mark.parametrize("right, wrong", [(1.0, -1.0), (10.0, 0.0), (0.2, 0.9)])
def test_pass_rates_count_what_is_correct_whatever_the_rewards_are(right: float, wrong: float) -> None:
    plain = [group("a", [True, False, False, False]), group("b", [True, True, None, False])]
    scaled = [
        RolloutGroup(
            g.prompt_id,
            tuple(t if t.reward is None else replace(t, reward=right if t.correct else wrong) for t in g.trajectories),
        )
        for g in plain
    ]
    assert evaluate_groups(scaled, [1, 2]) == evaluate_groups(plain, [1, 2])
    assert [g.outcome for g in scaled] == ["mixed", "mixed"]
