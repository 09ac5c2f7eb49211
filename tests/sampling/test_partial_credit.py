"""Rewards between wrong and right: what samplers learn from a group whose rewards differ while correctness does not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_cases import POOL, SAMPLERS, binary, play, sampler_of

from pipeline_lib.config import DriftDetector, GresoSampler, PosteriorSampler, Ramp, Sampler, VarianceSigmoidSampler
from pipeline_lib.records import Outcome, RolloutGroup, Trajectory
from pipeline_lib.sampling import Observation
from pipeline_lib.sampling.greso import Greso
from pipeline_lib.sampling.posterior import Posterior
from pipeline_lib.sampling.variance_sigmoid import VarianceSigmoid

every_sampler = pytest.mark.parametrize("config", SAMPLERS.values(), ids=SAMPLERS.keys())
SOME_TESTS_PASSED = [0.0, 0.2, 0.4, 0.4, 0.2, 0.0, 0.4, 0.2]
"""Of 5 tests of a program, by 8 answers; none passes all."""


def observed_rewards(rewards: Sequence[float | None], *, full: float = 1.0, prompt_id: str = "p000") -> Observation:
    """A group that is correct where it has the `full` reward."""
    trajectories = tuple(
        Trajectory(prompt_id, i, (1,), (2,), (0.0,), "stop", "", r, r == full, "error" if r is None else "ok")
        for i, r in enumerate(rewards)
    )
    return Observation.of(RolloutGroup(prompt_id, trajectories))


@pytest.mark.parametrize(
    ("rewards", "outcome", "n_high"),
    [
        ([0.0, 0.0, 0.0, 0.0], "all_wrong", 0),
        ([1.0, 1.0, 1.0], "all_right", 3),
        ([1.0, 0.0, 0.0, 0.0], "mixed", 1),
        ([0.4, 0.4, 0.4, 0.4], "all_wrong", 0),  # partial credit, and the same for all: no gradient
        (SOME_TESTS_PASSED, "mixed", 4),  # none is correct, and the group teaches
        ([0.0, 0.4, 0.4], "mixed", 1),
        ([1.0, 0.4, 0.4, 0.2], "mixed", 1),  # where one is correct, that is the difference
        ([0.4, 0.4 + 1e-9, 0.4], "all_wrong", 0),  # float noise
        ([0.4, None, 0.4, None], "all_wrong", 0),
        ([0.4, None, 0.2, None], "mixed", 1),
        ([None, None], "ungraded", 0),
        ([0.4], "all_wrong", 0),
    ],
)
def test_outcome_and_the_better_side_by_hand(rewards: list[float | None], outcome: Outcome, n_high: int) -> None:
    observation = observed_rewards(rewards)
    assert observation.outcome == outcome
    if outcome != "ungraded":
        assert observation.n_high == n_high


def test_all_correct_with_rewards_that_differ_is_mixed() -> None:
    """As with a bonus for short answers: every answer is right, and there is something to learn."""
    assert Observation("p000", 8, 8, True).outcome == "mixed"
    assert Observation("p000", 8, 8, True).n_high == 4


def test_equal_rewards_are_no_signal_though_some_are_correct() -> None:
    assert (Observation("p000", 8, 5, False).outcome, Observation("p000", 8, 5, False).n_high) == ("all_right", 8)
    assert (Observation("p000", 8, 3, False).outcome, Observation("p000", 8, 3, False).n_high) == ("all_wrong", 0)


@given(
    st.lists(st.sampled_from([0.0, 0.2, 0.4, 1.0, None]), min_size=1, max_size=16),
    st.sampled_from([1.0, 0.01, 10.0, 1000.0]),
    st.sampled_from([0.0, -1.0, 5.0]),
)
def test_any_group_size_and_reward_scale(rewards: list[float | None], scale: float, shift: float) -> None:
    graded = [r for r in rewards if r is not None]
    scaled = [None if r is None else scale * r + shift for r in rewards]
    observation = observed_rewards(scaled, full=scale + shift)
    assert (observation.outcome == "mixed") == (len(set(graded)) > 1)
    assert (observation.outcome == "ungraded") == (not graded)
    assert 0 <= observation.n_high <= observation.n
    if graded:
        assert (0 < observation.n_high < observation.n) == (len(set(graded)) > 1)
    if set(graded) == {0.0, 1.0}:
        assert observation.n_high == observation.n_correct == graded.count(1.0)


@every_sampler
def test_a_pool_that_earns_partial_credit_is_not_skipped_like_one_that_earns_none(config: Sampler) -> None:
    teaching = Observation("p000", 8, 0, True)
    sampler = sampler_of(config)
    for _ in range(12):
        kept = [d.prompt_id for d in sampler.propose(20) if d.keep]
        assert len(kept) == 20
        sampler.observe([teaching._replace(prompt_id=p) for p in kept])
        sampler.end_step()
    assert sampler.metrics()["revivals"] == 0


@every_sampler
def test_partial_credit_after_nothing_is_a_revival(config: Sampler) -> None:
    sampler = sampler_of(config)
    sampler.recall([observed_rewards([0.0] * 8)])
    sampler.observe([observed_rewards(SOME_TESTS_PASSED)])
    sampler.end_step()
    assert sampler.metrics()["revivals"] == 1


def test_greso_ends_a_run_where_rewards_differ_and_lengthens_it_where_they_do_not() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    sampler.recall([observed_rewards([0.0] * 8), observed_rewards([0.4] * 8)])
    assert sampler._decide("p000")[:2] == (0.25, "all_wrong × 2")
    sampler.recall([observed_rewards(SOME_TESTS_PASSED)])
    assert sampler._decide("p000")[:2] == (1.0, "mixed")


def test_greso_steers_by_groups_without_signal() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    while sampler.epoch == 0:
        sampler.propose(len(POOL))
        sampler.end_step()
    # None of the ten is correct. One of them earns nothing: 10 % are below the 1/6 that are wanted.
    sampler.observe([observed_rewards([0.0] * 8), *[observed_rewards(SOME_TESTS_PASSED)] * 9])
    sampler.end_step()
    assert sampler.metrics()["p_wrong"] == pytest.approx(0.51)


def test_the_posterior_of_a_group_that_differs_by_partial_credit() -> None:
    sampler = Posterior(PosteriorSampler(discount=0.5), POOL, 7, group_size=8)
    sampler.recall([observed_rewards(SOME_TESTS_PASSED)])
    assert sampler.posterior("p000") == (1 + 4, 1 + 4)
    sampler.recall([observed_rewards([0.0] * 8)])
    assert sampler.posterior("p000") == (1 + 0.5 * 4, 1 + 0.5 * 4 + 8)


def test_the_variance_of_a_group_that_differs_by_partial_credit() -> None:
    config = VarianceSigmoidSampler(window=Ramp(start=5, end=5, over=1))
    sampler = VarianceSigmoid(config, POOL, 7)
    sampler.recall([observed_rewards(SOME_TESTS_PASSED), observed_rewards([0.4] * 8)])
    assert sampler._decide("p000").reason == "variance 0.12"  # the mean of 1/4 and 0


def test_a_pool_of_partial_credit_is_no_drift() -> None:
    """Else each of its groups, 0 of 8 correct where half was believed, would be a surprise."""
    sampler = sampler_of(PosteriorSampler(drift=DriftDetector()))
    for _ in range(40):
        sampler.observe([observed_rewards(SOME_TESTS_PASSED, prompt_id=p) for p in POOL])
        sampler.end_step()
    assert sampler.metrics()["drift_alarms"] == 0


@every_sampler
def test_what_partial_credit_taught_is_in_the_state(config: Sampler) -> None:
    history = [observed_rewards(SOME_TESTS_PASSED, prompt_id=p) for p in POOL[:20]]
    history += [binary(p, 8, 0) for p in POOL for _ in range(3)] + history[:10]
    before, after = sampler_of(config, history=history), sampler_of(config)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    made = [play(sampler, [8] * 5, lambda d: "mixed") for sampler in (before, after)]
    assert made[0] == made[1]
