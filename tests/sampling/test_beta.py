"""The chance of a mixed group against integration, hand-worked values and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.sampling.beta import Beta, mixed_probability


def by_integration(beta: Beta, group_size: int, points: int = 20_000) -> float:
    """The mean of 1 - p^G - (1-p)^G under the density, by the midpoint rule."""
    weights, values = 0.0, 0.0
    for i in range(points):
        p = (i + 0.5) / points
        density = math.exp((beta.a - 1) * math.log(p) + (beta.b - 1) * math.log1p(-p))
        weights += density
        values += density * (1 - p**group_size - (1 - p) ** group_size)
    return values / weights


@pytest.mark.parametrize(
    ("beta", "group_size"),
    [(Beta(1, 1), 8), (Beta(9, 1), 8), (Beta(2.5, 7.25), 4), (Beta(40, 3), 16), (Beta(5, 5), 2)],
    ids=str,
)
def test_it_is_the_mean_of_the_chance_over_the_density(beta: Beta, group_size: int) -> None:
    assert mixed_probability(beta, group_size) == pytest.approx(by_integration(beta, group_size), abs=1e-6)


def test_hand_worked_values() -> None:
    # Under Beta(1, 1) every number of correct answers is equally likely: G - 1 of G + 1 are mixed.
    assert mixed_probability(Beta(1, 1), 8) == pytest.approx(7 / 9)
    # B(2, 1)/B(1, 1) = 1/2 for each side.
    assert mixed_probability(Beta(1, 1), 1) == 0
    # Beta(9, 1): all right 9/17; all wrong 1/C(17, 8).
    assert mixed_probability(Beta(9, 1), 8) == pytest.approx(1 - 9 / 17 - 1 / math.comb(17, 8))


def exactly(beta: Beta, group_size: int) -> Fraction:
    a, b = map(Fraction, beta)
    right, wrong = Fraction(1), Fraction(1)
    for i in range(group_size):
        right *= (a + i) / (a + b + i)
        wrong *= (b + i) / (a + b + i)
    return 1 - right - wrong


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.integers(1, 64))
def test_it_is_exact_where_log_gammas_would_cancel(a: float, b: float, group_size: int) -> None:
    got, expected = mixed_probability(Beta(a, b), group_size), float(exactly(Beta(a, b), group_size))
    assert 0 <= got <= 1
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert got == mixed_probability(Beta(b, a), group_size)


def test_the_surer_the_prior_at_one_half_the_likelier_a_mixed_group() -> None:
    values = [mixed_probability(Beta(n, n), 8) for n in (0.1, 1, 10, 1e6)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(1 - 2 / 2**8, abs=1e-5)


@pytest.mark.parametrize("beta", [Beta(0, 1), Beta(1, -2)], ids=str)
def test_an_improper_prior_is_refused(beta: Beta) -> None:
    with pytest.raises(ValueError, match="both parameters must be above 0"):
        mixed_probability(beta, 8)
