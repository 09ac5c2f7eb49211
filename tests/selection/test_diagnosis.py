"""Diagnosis of scores and selections: values worked by hand, and what holds for every pool."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.selection.diagnosis import (
    DIAGNOSIS_SCHEMA,
    diagnose,
    effective_prompts,
    share_tied,
    share_zero,
    ties_broken_at_cut,
)

COSINES = st.lists(st.sampled_from([-0.5, 0.0, 1e-300, 0.1, 0.3, 1.0]) | st.floats(-1, 1), min_size=1, max_size=40)


def test_shares_by_hand() -> None:
    assert share_zero(np.array([0.0, -0.0, 1e-12, 0.5])) == 0.5
    assert share_tied(np.array([0.2, 0.3, 0.2, 0.2 + 1e-16])) == 0.5
    assert share_tied(np.array([0.2, 0.3])) == 0.0


def test_a_share_of_no_prompts_is_not_defined() -> None:
    assert share_zero(np.array([])) is None
    assert share_tied(np.array([])) is None


@pytest.mark.parametrize(
    ("score", "kept", "broken"),
    [
        ([3.0, 2.0, 2.0, 2.0, 1.0], 2, 3),
        ([3.0, 2.0, 2.0, 2.0, 1.0], 3, 3),
        ([3.0, 2.0, 2.0, 2.0, 1.0], 4, 0),
        ([3.0, 2.0, 2.0, 2.0, 1.0], 1, 0),
        ([0.0, 0.0], 2, 0),
    ],
)
def test_ties_count_only_where_the_cut_falls_between_them(score: list[float], kept: int, broken: int) -> None:
    assert ties_broken_at_cut(np.arange(len(score)) < kept, np.array(score)) == broken


def test_ties_of_cosines_count_though_ranks_have_parted_them() -> None:
    """Ranks break ties by prompt_id before they are fused, so the fused scores of like prompts differ."""
    fused = np.array([2.0, 1.0, 2 / 3, 0.5])
    cosines = np.array([[0.3, 0.3], [0.0, 0.0], [0.0, 0.0], [-0.1, 0.0]])
    assert ties_broken_at_cut(np.array([True, True, False, False]), fused, cosines) == 2
    assert ties_broken_at_cut(np.array([True, True, True, False]), fused, cosines) == 0


def test_effective_prompts_by_hand() -> None:
    assert effective_prompts(np.array([0.0, -0.4, 0.7])) == pytest.approx(1)
    assert effective_prompts(np.array([0.2, 0.2, -1.0, 0.2, 0.2])) == pytest.approx(4)
    # p = 1/2, 1/4, 1/4: entropy 1/2 ln 2 + 2 · 1/4 ln 4 = 3/2 ln 2
    assert effective_prompts(np.array([0.4, 0.2, 0.2])) == pytest.approx(2**1.5)
    assert effective_prompts(np.array([0.0, -0.1])) is None


@given(COSINES, st.randoms(use_true_random=False))
def test_effective_prompts_lie_between_1_and_the_number_positive(cosines: list[float], random: object) -> None:
    cosine_N = np.array(cosines)
    effective = effective_prompts(cosine_N)
    positive = int((cosine_N > 0).sum())
    if positive == 0:
        assert effective is None
        return
    assert effective is not None
    assert 1 - 1e-9 <= effective <= positive * (1 + 1e-9)
    assert effective_prompts(cosine_N * 2) == pytest.approx(effective)
    random.shuffle(cosines)  # type: ignore[attr-defined]
    assert effective_prompts(np.array(cosines)) == effective


def test_diagnosis_by_hand() -> None:
    table = diagnose(
        score_N=np.array([1.5, 1.5, 0.5, 0.5]),
        selected_N=np.array([True, False, False, False]),
        has_signal_N=np.array([True, True, True, False]),
        cosine_by_set={"u": np.array([0.3, 0.1, 0.1, 0.0]), "v": np.array([0.2, -0.1, -0.3, 0.0])},
    )
    assert table.schema == DIAGNOSIS_SCHEMA
    p = np.array([0.6, 0.2, 0.2])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("", "share_tied", pytest.approx(2 / 3), 3),
        ("", "ties_broken_at_cut", 2, 4),
        ("u", "share_zero", 0.25, 4),
        ("u", "share_tied", pytest.approx(2 / 3), 3),
        ("u", "effective_prompts", pytest.approx(math.exp(-(p * np.log(p)).sum())), 3),
        ("v", "share_zero", 0.25, 4),
        ("v", "share_tied", 0.0, 3),
        ("v", "effective_prompts", pytest.approx(1.0), 1),
    ]


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_order_of_the_pool_changes_nothing(pool: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cosine = rng.choice([-0.5, 0.0, 0.1, 0.3, 0.7], size=pool)
    score = rng.choice([0.0, 0.5, 1.0], size=pool)
    selected = score >= rng.choice(score)
    has_signal = rng.random(pool) < 0.7
    tables = [
        diagnose(score[order], selected[order], has_signal[order], {"v": cosine[order]})
        for order in (np.arange(pool), rng.permutation(pool))
    ]
    assert tables[0].equals(tables[1])


def test_a_pool_without_any_signal_has_no_ties_to_tell_of() -> None:
    nothing = np.zeros(2)
    table = diagnose(nothing, np.array([True, False]), np.array([False, False]), {"v": nothing})
    values = {(row["subject"], row["metric"]): (row["value"], row["n"]) for row in table.to_pylist()}
    assert values == {
        ("", "share_tied"): (None, 0),
        ("", "ties_broken_at_cut"): (2.0, 2),
        ("v", "share_zero"): (1.0, 2),
        ("v", "share_tied"): (None, 0),
        ("v", "effective_prompts"): (None, 0),
    }
