"""The drift detector: sums by hand, false alarms and delays against the published run lengths of a CUSUM."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import DriftDetector
from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.drift import DriftMonitor, Surprise, standardised_surprise


def of(z: float) -> list[Surprise]:
    """A step whose standardised surprise is all but exactly z: one prompt of rate 1/2, known for certain."""
    n = 1_000_000
    return [Surprise(Beta(1e15, 1e15), n, round(n / 2 + z * math.sqrt(n) / 2))]


def test_surprise_by_hand() -> None:
    # Beta(1, 1): n = 4, m = 1/2, κ = 2: variance 4 * 1/4 * (2 + 4) / (2 + 1) = 2.
    assert standardised_surprise([Surprise(Beta(1, 1), 4, 4)]) == pytest.approx(2 / math.sqrt(2))
    # With Beta(3, 1), n = 4: expected 3, variance 4 * 3/16 * 8 / 5 = 1.2.
    both = [Surprise(Beta(1, 1), 4, 4), Surprise(Beta(3, 1), 4, 2)]
    assert standardised_surprise(both) == pytest.approx((2 - 1) / math.sqrt(3.2))
    assert standardised_surprise([]) == 0
    assert standardised_surprise([Surprise(Beta(1, 1), 0, 0)]) == 0


def test_surprise_has_mean_0_and_variance_1_where_beliefs_are_right() -> None:
    rng = np.random.default_rng(0)
    zs = []
    for _ in range(4000):
        a, b = rng.uniform(0.5, 6, (2, 5))
        n_correct = rng.binomial(8, rng.beta(a, b))
        zs.append(
            standardised_surprise([Surprise(Beta(*ab), 8, int(k)) for *ab, k in zip(a, b, n_correct, strict=True)])
        )
    assert np.mean(zs) == pytest.approx(0, abs=0.05)
    assert np.std(zs) == pytest.approx(1, abs=0.04)


def test_the_sums_by_hand() -> None:
    monitor = DriftMonitor(DriftDetector(allowance=0.5, threshold=2.0))
    assert [monitor.step(of(z)) for z in (1.0, -0.5, 1.5)] == [False, False, False]
    # Up: 0.5, then 0.5 - 1 -> 0, then 1. Down: 0, then 0, then 0.
    assert monitor.metrics()["drift_up"] == pytest.approx(1.0, abs=1e-3)
    assert monitor.step(of(1.7))  # 2.2 is above 2
    assert monitor.metrics() == {"drift_up": 0, "drift_down": 0, "drift_alarms": 1}
    assert monitor.step(of(-2.7))  # 2.2 downwards


def test_an_alarm_lowers_the_discount_for_a_while() -> None:
    monitor = DriftMonitor(DriftDetector(threshold=2.0, discount=0.5, hold_steps=3))
    assert monitor.discount(0.9) == 0.9
    monitor.step(of(3.0))
    discounts = []
    for _ in range(4):
        discounts.append(monitor.discount(0.9))
        monitor.step(of(0.0))
    assert discounts == [0.5, 0.5, 0.5, 0.9]


def test_a_sampler_that_forgets_faster_still_keeps_its_discount() -> None:
    monitor = DriftMonitor(DriftDetector(threshold=2.0, discount=0.5))
    monitor.step(of(3.0))
    assert monitor.discount(0.25) == 0.25


def run_lengths(shift: float, threshold: float, runs: int) -> Iterator[int]:
    rng = np.random.default_rng(0)
    monitor = DriftMonitor(DriftDetector(threshold=threshold))
    for _ in range(runs):
        length = 1
        while not monitor.step(of(rng.normal(shift))):
            length += 1
        yield length


@pytest.mark.parametrize(
    ("shift", "threshold", "published", "runs"),
    [(0.0, 4.0, 168, 300), (0.0, 5.0, 465, 150), (1.0, 4.0, 8.38, 500), (1.0, 5.0, 10.4, 500)],
)
def test_steps_to_an_alarm_are_those_of_the_cusum(shift: float, threshold: float, published: float, runs: int) -> None:
    """Average run lengths of the two-sided CUSUM with k = 1/2 (Montgomery, Statistical Quality Control)."""
    lengths = list(run_lengths(shift, threshold, runs))
    error = np.std(lengths) / math.sqrt(runs)
    assert abs(np.mean(lengths) - published) < 3 * error + 0.02 * published


def test_groups_of_right_beliefs_seldom_give_an_alarm_and_drifted_ones_soon_do() -> None:
    def alarms(steps: int, seed: int, harder: float) -> int:
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor(DriftDetector())
        for _ in range(steps):
            a, b = rng.uniform(0.5, 6, (2, 16))
            n_correct = rng.binomial(8, (1 - harder) * rng.beta(a, b))
            monitor.step([Surprise(Beta(*ab), 8, int(k)) for *ab, k in zip(a, b, n_correct, strict=True)])
        return monitor.alarms

    assert sum(alarms(100, seed, harder=0.0) for seed in range(20)) <= 10  # 4.3 are expected of 2,000 steps
    assert all(alarms(20, seed, harder=0.3) >= 1 for seed in range(20))


@given(st.lists(st.floats(-3, 3), max_size=30), st.integers(0, 30))
def test_a_restored_monitor_goes_on_as_if_never_stopped(zs: list[float], cut: int) -> None:
    config = DriftDetector(threshold=1.5, hold_steps=2)
    straight = DriftMonitor(config)
    fired = [straight.step(of(z)) for z in zs]
    before, after = DriftMonitor(config), DriftMonitor(config)
    first = [before.step(of(z)) for z in zs[:cut]]
    after.load_state_dict(before.state_dict())
    assert first + [after.step(of(z)) for z in zs[cut:]] == fired
    assert after.state_dict() == straight.state_dict()
