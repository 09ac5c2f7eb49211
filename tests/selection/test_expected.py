"""What prompts that were not rolled out would show: against scikit-learn fitted anew without each prompt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from pipeline_lib.selection.expected import PENALTIES, expected, features


@given(st.integers(3, 12), st.integers(0, 9), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_it_is_the_ridge_whose_penalty_errs_least_on_prompts_left_out(S: int, new: int, F: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features_NF = rng.standard_normal((S + new, F))
    seen_N = rng.permutation(np.arange(S + new) < S)
    value_N = features_NF[:, 0] + rng.standard_normal(S + new)
    seen_SF, value_S = features_NF[seen_N], value_N[seen_N]
    largest = np.linalg.svd(seen_SF - seen_SF.mean(axis=0), compute_uv=False)[0]

    def ridge(penalty: float) -> Ridge:
        return Ridge(alpha=penalty * largest**2, solver="svd")

    def left_out_error(penalty: float) -> float:
        others = ~np.eye(S, dtype=bool)
        left_out = [ridge(penalty).fit(seen_SF[o], value_S[o]).predict(seen_SF[~o])[0] for o in others]
        return float(np.square(value_S - left_out).mean())

    best = min(PENALTIES[::-1], key=left_out_error)
    found = expected(features_NF, seen_N, np.where(seen_N, value_N, np.nan))
    told = ridge(best).fit(seen_SF, value_S).predict(features_NF)
    np.testing.assert_allclose(found, np.clip(told, value_S.min(), value_S.max()), rtol=1e-4, atol=1e-4)


@given(st.integers(1, 8), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_units_of_the_states_do_not_matter(D: int, unit: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    states_ND, n_tokens_N = rng.standard_normal((20, D)), rng.integers(5, 50, 20)
    seen_N, value_N = np.arange(20) < 12, rng.random(20)
    found = [expected(features(scale * states_ND, n_tokens_N), seen_N, value_N) for scale in (1.0, unit)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


def test_a_length_tells_as_much_as_the_leading_direction() -> None:
    states_ND = np.array([[3.0, 0.1], [-3.0, -0.1], [3.0, -0.1], [-3.0, 0.1]])
    features_NF = features(states_ND, np.array([10, 20, 40, 80]))
    assert features_NF.shape == (4, 4)
    np.testing.assert_allclose(features_NF[:, 2:].std(axis=0), [3.0, 3.0])
    assert (features(states_ND, np.full(4, 10))[:, 2:] == 0).all()


def test_with_two_seen_it_goes_no_further_than_they_do() -> None:
    """Left out, each is told by the other, whatever the penalty."""
    found = expected(np.array([[0.0], [1.0], [10.0], [-10.0]]), np.arange(4) < 2, np.array([0.0, 0.2, np.nan, np.nan]))
    assert found.min() >= 0.0 and found.max() <= 0.2
    assert found[1] - found[0] < 0.1, "the greatest penalty of those that err alike"


@pytest.mark.parametrize(("n_seen", "told"), [(0, 0.0), (1, 5.0)])
def test_with_nothing_to_compare_it_is_the_only_value_or_none(n_seen: int, told: float) -> None:
    seen_N = np.arange(4) < n_seen
    found = expected(np.random.default_rng(1).standard_normal((4, 2)), seen_N, np.where(seen_N, 5.0, np.nan))
    assert found.tolist() == [told] * 4


def test_where_all_are_alike_or_show_the_same_it_is_their_mean() -> None:
    seen_N = np.array([True, True, False])
    assert expected(np.ones((3, 2)), seen_N, np.array([1.0, 2.0, np.nan])).tolist() == [1.5] * 3
    assert expected(np.eye(3), seen_N, np.array([2.0, 2.0, np.nan])).tolist() == [2.0] * 3
