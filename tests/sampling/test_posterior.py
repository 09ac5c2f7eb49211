"""The Beta posterior: counts worked by hand, forgetting, keep probabilities, and where γ is steered."""

from __future__ import annotations

import math
import random

import pytest
from sampling_cases import POOL, binary, observed

from pipeline_lib.config import FixedStep, PosteriorSampler
from pipeline_lib.sampling import Beta, make_sampler, mixed_probability
from pipeline_lib.sampling.posterior import Posterior


def posterior_sampler(
    config: PosteriorSampler | None = None, *, pool: list[str] = POOL, priors: dict[str, Beta] | None = None
) -> Posterior:
    return Posterior(config or PosteriorSampler(), pool, 7, group_size=8, priors=priors or {})


def skip_steps(sampler: Posterior, n: int) -> None:
    for _ in range(n):
        sampler.end_step()


def test_each_further_group_fades_the_earlier_ones_towards_the_prior() -> None:
    sampler = posterior_sampler(PosteriorSampler(discount=0.5, prior_right=2, prior_wrong=3))
    assert sampler.posterior("p000") == (2, 3)
    sampler.observe([binary("p000", 8, 6)])
    assert sampler.posterior("p000") == (8, 5)
    sampler.observe([binary("p000", 4, 1)])
    # MoPPS: a <- λ·a + (1-λ)·a0 + s
    assert sampler.posterior("p000") == pytest.approx((0.5 * 8 + 0.5 * 2 + 1, 0.5 * 5 + 0.5 * 3 + 3))


def test_each_step_without_a_group_fades_the_counts_by_the_half_life() -> None:
    sampler = posterior_sampler(PosteriorSampler(discount=1.0, half_life=4))
    sampler.observe([binary("p000", 8, 8), binary("p001", 8, 8)])
    skip_steps(sampler, 4)
    assert sampler.posterior("p000") == pytest.approx((1 + 4, 1))
    skip_steps(sampler, 2)
    assert sampler.posterior("p000") == pytest.approx((1 + 4 / math.sqrt(2), 1))
    # A group in between does not restart the fading of what was there before.
    sampler.observe([binary("p001", 8, 0)])
    skip_steps(sampler, 2)
    assert sampler.posterior("p001") == pytest.approx((1 + 8 / 4, 1 + 8 / math.sqrt(2)))


def test_a_prompt_that_was_skipped_for_long_is_likelier_to_be_kept_again() -> None:
    sampler = posterior_sampler(PosteriorSampler(half_life=10))
    sampler.observe([observed("p000", "all_right")] * 5 + [observed("p001", "mixed")])
    chances = []
    for _ in range(4):
        chances.append(mixed_probability(sampler.posterior("p000"), 8))
        skip_steps(sampler, 20)
    assert chances == sorted(chances)
    assert chances[0] < 0.3 and chances[-1] > 0.7


def test_keep_is_the_chance_relative_to_the_likeliest_to_the_power_of_sharpness() -> None:
    config = PosteriorSampler(sharpness=3.0, exploration=0.02)
    sampler = posterior_sampler(config, pool=["mixed", "new", "right", "wrong"])
    sampler.observe(
        [observed("right", "all_right")] * 20 + [observed("wrong", "all_wrong"), observed("mixed", "mixed")]
    )
    decided = {d.prompt_id: d for d in sampler.propose(4)}
    greatest = mixed_probability(Beta(4, 6), 8)
    assert decided["mixed"].keep_probability == 1 and decided["mixed"].reason == "mixed chance 0.9"
    assert decided["new"].keep_probability == pytest.approx((7 / 9 / greatest) ** 3)
    assert decided["wrong"].keep_probability == pytest.approx((mixed_probability(Beta(1, 9), 8) / greatest) ** 3)
    assert decided["right"].keep_probability == 0.02


def test_priors_decide_where_there_is_no_history() -> None:
    priors = {"easy": Beta(60, 1), "middling": Beta(5, 5)}
    config = PosteriorSampler(prior_right=1, prior_wrong=20)
    sampler = Posterior(config, ["easy", "middling", "unknown"], 7, group_size=8, priors=priors)
    decided = {d.prompt_id: d.keep_probability for d in sampler.propose(3)}
    greatest = mixed_probability(Beta(5, 5), 8)
    assert decided["middling"] == 1
    assert decided["easy"] == pytest.approx(mixed_probability(Beta(60, 1), 8) / greatest)
    assert decided["unknown"] == pytest.approx(mixed_probability(Beta(1, 20), 8) / greatest)


def test_a_pool_that_can_have_no_mixed_group_is_kept_whole() -> None:
    sampler = make_sampler(PosteriorSampler(), POOL, [], 7, group_size=1)
    assert all(d.keep and d.keep_probability == 1 for d in sampler.propose(10))


def test_sharpness_is_not_steered_where_all_prompts_are_alike() -> None:
    sampler = posterior_sampler(PosteriorSampler(controller=FixedStep(step=0.5)))
    for _ in range(3):
        kept = [d.prompt_id for d in sampler.propose(10)]
        sampler.observe([observed(p, "all_wrong") for p in kept])
        sampler.end_step()
    assert sampler.metrics()["sharpness"] == 1.0
    while sampler.epoch == 0:
        sampler.propose(10)
    sampler.propose(10)
    sampler.observe([observed("p000", "all_wrong")])
    sampler.end_step()
    assert sampler.metrics()["sharpness"] == 1.5


def test_steering_brings_the_share_of_mixed_groups_to_its_target() -> None:
    """A pool of which a quarter is mixed; the others are always right or always wrong."""
    pool = [f"p{i:03d}" for i in range(200)]
    shares = {}
    for step in (1e-9, 0.2):
        config = PosteriorSampler(controller=FixedStep(step=step), target_mixed=0.5, sharpness=0.2)
        sampler = posterior_sampler(config, pool=pool)
        rng = random.Random(1)
        seen: list[bool] = []
        for _ in range(150):
            kept = [d.prompt_id for d in sampler.propose(20) if d.keep]
            groups = [observed(p, "mixed" if p < "p050" else rng.choice(["all_right", "all_wrong"])) for p in kept]
            sampler.observe(groups)
            sampler.end_step()
            seen += [group.outcome == "mixed" for group in groups]
        shares[step] = sum(seen[-1000:]) / 1000
    assert shares[1e-9] < 0.4
    assert shares[0.2] == pytest.approx(0.5, abs=0.06)


def test_the_expected_share_is_the_mean_chance_of_the_kept_prompts() -> None:
    sampler = posterior_sampler(pool=["a", "b"])
    sampler.recall([observed("a", "mixed")])
    kept = [d.prompt_id for _ in range(2) for d in sampler.propose(1) if d.keep]
    assert sorted(kept) == ["a", "b"]
    sampler.observe([observed("a", "all_wrong")])  # does not change what was expected
    sampler.end_step()
    expected = (mixed_probability(Beta(4, 6), 8) + 7 / 9) / 2
    assert sampler.metrics()["expected_mixed_share"] == pytest.approx(expected)
