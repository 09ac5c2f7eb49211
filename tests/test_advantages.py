"""Group-normalised advantages against hand-worked groups and their invariants."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline_lib.advantages import graded_advantages, group_advantages
from pipeline_lib.records import REWARD_TOLERANCE, RolloutGroup, Trajectory

rewards_of_a_group = st.lists(st.none() | st.floats(-100, 100), max_size=16)


def test_one_right_of_four() -> None:
    # mean 1/4, squared deviations 9/16 + 3 * 1/16 = 3/4, std = sqrt(3/4 / 3) = 1/2
    assert group_advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx([0.75 / 0.5001] + [-0.25 / 0.5001] * 3)


def test_an_ungraded_trajectory_counts_for_nothing() -> None:
    # over 3, 1, 2: mean 2, std 1
    assert group_advantages([3.0, None, 1.0, 2.0]) == pytest.approx([1 / 1.0001, 0.0, -1 / 1.0001, 0.0])


@pytest.mark.parametrize(
    "rewards",
    [[], [None], [1.0], [None, 1.0], [1.0] * 8, [0.0] * 8, [-3.5, -3.5], [0.5, 0.5 + REWARD_TOLERANCE / 2]],
)
def test_without_signal_every_advantage_is_exactly_zero(rewards: list[float | None]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)


@given(rewards_of_a_group)
def test_finite_centred_and_ordered_as_the_rewards(rewards: list[float | None]) -> None:
    advantages = group_advantages(rewards)
    assert len(advantages) == len(rewards)
    assert all(math.isfinite(a) for a in advantages)
    graded = [(r, a) for r, a in zip(rewards, advantages, strict=True) if r is not None]
    assert sum(a for _, a in graded) == pytest.approx(0.0, abs=1e-6)
    assert [a for _, a in sorted(graded)] == sorted(a for _, a in graded)
    assert all(a == 0.0 for r, a in zip(rewards, advantages, strict=True) if r is None)


@given(rewards_of_a_group, st.floats(-100, 100))
def test_a_shift_of_every_reward_changes_nothing(rewards: list[float | None], shift: float) -> None:
    graded = [r for r in rewards if r is not None]
    # At the tolerance itself, rounding may put the shifted group on the other side.
    assume(not graded or abs(max(graded) - min(graded) - REWARD_TOLERANCE) > 1e-9)
    shifted = [None if r is None else r + shift for r in rewards]
    assert group_advantages(shifted) == pytest.approx(group_advantages(rewards), abs=1e-6)


def test_graded_advantages_pair_each_graded_trajectory_with_its_advantage() -> None:
    def trajectory(index: int, reward: float | None) -> Trajectory:
        return Trajectory("p", index, (1,), (2,), (-0.5,), "stop", "", reward, reward == 1.0, "ok")

    group = RolloutGroup("p", tuple(trajectory(i, r) for i, r in enumerate([None, 1.0, None, 0.0])))
    std = math.sqrt(0.5)
    pairs = graded_advantages(group)
    assert [t.sample_index for t, _ in pairs] == [1, 3]
    assert [a for _, a in pairs] == pytest.approx([0.5 / (std + 1e-4), -0.5 / (std + 1e-4)])
