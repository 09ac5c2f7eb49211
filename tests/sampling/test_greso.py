"""GRESO: keep probabilities, and how p_right and p_wrong are steered."""

from __future__ import annotations

import pytest
from sampling_cases import POOL, observed, sampler_of

from pipeline_lib.config import FixedStep, GresoSampler, Pid
from pipeline_lib.sampling.greso import Greso


def keep_probability(sampler: Greso, prompt_id: str) -> tuple[float, str]:
    return sampler._decide(prompt_id)[:2]


def test_keep_probability_is_p_to_the_length_of_the_trailing_run() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    assert keep_probability(sampler, "p000") == (1.0, "no history")
    sampler.observe([observed("p000", "all_wrong")])
    assert keep_probability(sampler, "p000") == (0.5, "all_wrong × 1")
    sampler.observe([observed("p000", "all_wrong")] * 2)
    assert keep_probability(sampler, "p000") == (0.125, "all_wrong × 3")
    # A run of the other class begins anew; a mixed group ends it.
    sampler.observe([observed("p000", "all_right")])
    assert keep_probability(sampler, "p000") == (0.5, "all_right × 1")
    sampler.observe([observed("p000", "mixed")])
    assert keep_probability(sampler, "p000") == (1.0, "mixed")


def test_exploration_is_the_floor() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    sampler.observe([observed("p000", "all_right")] * 50)
    assert keep_probability(sampler, "p000") == (0.01, "all_right × 50")


def test_an_ungraded_group_says_nothing() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    sampler.observe([observed("p000", "all_right"), observed("p000", "ungraded")])
    assert keep_probability(sampler, "p000") == (0.5, "all_right × 1")


def test_controllers_move_once_a_step_from_the_second_epoch_on() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    outcomes = [observed("p000", "all_right")] * 2 + [observed("p001", "mixed")] * 8
    sampler.observe(outcomes)
    sampler.end_step()
    assert (sampler.metrics()["p_right"], sampler.metrics()["p_wrong"]) == (0.5, 0.5)
    while sampler.epoch == 0:
        sampler.propose(len(POOL))
        sampler.end_step()
    # 20 % all right is above 1/12: fewer of them. 0 % all wrong is below 1/6: more of them.
    sampler.observe(outcomes)
    sampler.end_step()
    assert sampler.metrics()["p_right"] == pytest.approx(0.49)
    assert sampler.metrics()["p_wrong"] == pytest.approx(0.51)


def test_controllers_stay_within_their_bounds() -> None:
    sampler = Greso(GresoSampler(controller=FixedStep(step=0.3)), POOL, seed=0)
    sampler.propose(len(POOL))
    for _ in range(5):
        sampler.observe([observed("p000", "all_right")])
        sampler.end_step()
    assert sampler.metrics()["p_right"] == 0.05
    assert sampler.metrics()["p_wrong"] == 0.95


def test_the_prior_is_not_part_of_the_first_step() -> None:
    history = [observed(p, "all_right") for p in POOL]
    sampler = sampler_of(GresoSampler(controller=FixedStep(step=0.3)), history=history)
    sampler.propose(1000)  # the whole pool: the second epoch begins
    sampler.end_step()
    assert sampler.metrics()["p_right"] == 0.5


def test_a_pool_of_skipped_prompts_ends_the_proposal() -> None:
    history = [observed(p, "all_wrong") for p in POOL for _ in range(20)]
    sampler = sampler_of(GresoSampler(), history=history)
    decisions = sampler.propose(10)
    assert len(decisions) == len(POOL)
    assert sum(d.keep for d in decisions) < 10


def test_a_prompt_is_kept_once_a_step() -> None:
    sampler = sampler_of(GresoSampler())
    first, second = sampler.propose(30), sampler.propose(30)
    kept = [d.prompt_id for d in first + second if d.keep]
    assert len(kept) == len(set(kept)) == len(POOL)
    sampler.end_step()
    assert sum(d.keep for d in sampler.propose(30)) == 30


def test_a_pid_controller_moves_p_towards_the_targets_as_well() -> None:
    sampler = sampler_of(GresoSampler(controller=Pid(kp=0.0, ki=1.0, smoothing=1.0)))
    sampler.propose(len(POOL))
    sampler.observe([observed("p000", "all_right"), observed("p001", "mixed")])
    sampler.end_step()
    # 0.9 is the range of p: 0.5 + 0.9 · (1/12 - 1/2), and 0.5 + 0.9 · (1/6 - 0).
    assert sampler.metrics()["p_right"] == pytest.approx(0.125)
    assert sampler.metrics()["p_wrong"] == pytest.approx(0.65)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"p_min=0\.9 is above p_max=0\.1"):
        GresoSampler(p_min=0.9, p_max=0.1)
