"""Rank correlations by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline_lib.influence.stability import spearman, split_half


def test_spearman_by_hand() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert spearman(a, a**3) == pytest.approx(1.0)
    assert spearman(a, -a) == pytest.approx(-1.0)
    # 1 - 6 Σd² / (n (n² - 1)) with d = 1, 1, 0, 1, 1.
    assert spearman(a, np.array([2.0, 1.0, 3.0, 5.0, 4.0])) == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_tied_values_share_their_mean_rank() -> None:
    # Ranks 1.5, 1.5, 3, 4 and 1, 2, 3.5, 3.5: Pearson by hand is 4 / 4.5.
    assert spearman(np.array([0.0, 0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0, 3.0])) == pytest.approx(4 / 4.5)


def test_a_constant_ranking_has_no_correlation() -> None:
    assert math.isnan(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))
    assert math.isnan(spearman(np.array([1.0]), np.array([2.0])))


def test_split_half_by_hand() -> None:
    first = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    second = np.array([[1.0, 1.0], [3.0, 2.0], [2.0, 3.0]])
    on_plus, on_minus = split_half(np.stack([first, second]))
    assert on_plus.spearman == pytest.approx(0.5) and on_plus.n_prompts == 3
    assert on_plus.reliability == pytest.approx(2 * 0.5 / 1.5)
    assert math.isnan(on_minus.spearman) and math.isnan(on_minus.reliability)
