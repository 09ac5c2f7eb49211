"""Controllers against sequences worked by hand, and a PID against a plant that saturates and lags."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import FixedStep, Pid
from pipeline_lib.sampling.controller import Controller, make_controller


def test_fixed_step_by_hand() -> None:
    controller = make_controller(FixedStep(step=0.25), start=0.5, low=0.1, high=0.9, target=0.3)
    values = []
    for share in (0.3, 0.29, 0.2, 0.0, 0.9, 0.9, 0.9, 0.9):
        controller.update(share)
        values.append(controller.value)
    # At its target a share is not below it: GRESO's rule goes down.
    assert values == pytest.approx([0.25, 0.5, 0.75, 0.9, 0.65, 0.4, 0.15, 0.1])


def test_pid_by_hand() -> None:
    gains = Pid(kp=0.5, ki=0.25, kd=0.125, smoothing=0.5)
    controller = make_controller(gains, start=4.0, low=0.0, high=10.0, target=0.5)
    controller.update(0.3)  # average 0.3, e 0.2, Σe 0.2, no change yet
    assert controller.value == pytest.approx(4 + 10 * (0.5 * 0.2 + 0.25 * 0.2))
    controller.update(0.5)  # average 0.4, e 0.1, Σe 0.3, Δe -0.1
    assert controller.value == pytest.approx(4 + 10 * (0.5 * 0.1 + 0.25 * 0.3 - 0.125 * 0.1))
    controller.update(0.8)  # average 0.6, e -0.1, Σe 0.2, Δe -0.2
    assert controller.value == pytest.approx(4 + 10 * (-0.5 * 0.1 + 0.25 * 0.2 - 0.125 * 0.2))


def test_pid_at_its_bound_adds_up_nothing_more_by_hand() -> None:
    gains = Pid(kp=0.0, ki=1.0, kd=0.0, smoothing=1.0)
    controller = make_controller(gains, start=0.5, low=0.0, high=1.0, target=0.5)
    values = []
    for share in (0.2, 0.2, 0.2, 0.2, 0.6):
        controller.update(share)
        values.append(controller.value)
    # 0.5 + 0.3; the next 0.3 would overshoot, so the sum stays; one error of -0.1 is felt at once.
    assert values == pytest.approx([0.8, 0.8, 0.8, 0.8, 0.7])


def run(controller: Controller, plant: Callable[[float], float], steps: int, lag: float = 1.0) -> list[float]:
    """Shares of a plant whose answer follows the value with a first-order lag."""
    shares, share = [], plant(controller.value)
    for _ in range(steps):
        share += lag * (plant(controller.value) - share)
        shares.append(share)
        controller.update(share)
    return shares


@pytest.mark.parametrize("lag", [1.0, 0.3])
@pytest.mark.parametrize("target", [0.3, 0.5, 0.75])
def test_pid_reaches_its_target_and_stays(target: float, lag: float) -> None:
    controller = make_controller(Pid(), start=1.0, low=0.1, high=8.0, target=target)
    shares = run(controller, lambda sharpness: 0.2 + 0.1 * sharpness, 150, lag)
    assert shares[-30:] == pytest.approx([target] * 30, abs=0.01)
    assert controller.value == pytest.approx((target - 0.2) / 0.1, abs=0.1)


def steps_until(shares: list[float], target: float) -> int:
    return next(i for i in range(len(shares)) if all(abs(s - target) < 0.02 for s in shares[i:]))


@pytest.mark.parametrize("stuck", [0, 20, 2000])
def test_pid_leaves_saturation_as_soon_however_long_it_lasted(stuck: int) -> None:
    controller = make_controller(Pid(), start=1.0, low=0.1, high=8.0, target=0.75)
    run(controller, lambda value: 0.1, stuck)  # nothing helps: the pool has no mixed prompts
    assert controller.value <= 8.0
    shares = run(controller, lambda value: min(1.0, 0.5 + 0.1 * value), 200)
    assert steps_until(shares, 0.75) < 100


def test_fixed_steps_swing_about_their_target() -> None:
    controller = make_controller(FixedStep(step=0.01), start=0.9, low=0.05, high=0.95, target=1 / 6)
    shares = run(controller, lambda p: 0.5 * p, 200)
    assert all(abs(share - 1 / 6) <= 0.01 for share in shares[-50:])


@given(
    st.sampled_from([FixedStep(step=0.5), Pid(kp=3, ki=1, kd=2)]),
    st.lists(st.floats(0, 1), max_size=40),
    st.integers(0, 40),
)
def test_the_value_stays_within_bounds_and_a_restored_controller_goes_on(
    config: FixedStep | Pid, shares: list[float], cut: int
) -> None:
    def fresh() -> Controller:
        return make_controller(config, start=1.0, low=0.25, high=3.0, target=0.4)

    straight, before, after = fresh(), fresh(), fresh()
    for share in shares[:cut]:
        before.update(share)
    after.load_state_dict(before.state_dict())
    for share in shares[cut:]:
        after.update(share)
    for share in shares:
        straight.update(share)
        assert 0.25 <= straight.value <= 3.0
    assert after.state_dict() == straight.state_dict()
