"""GRESO: keep probabilities, controllers, and decisions that depend on seed and history alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import GresoSampler
from pipeline_lib.sampling import Observation, make_sampler
from pipeline_lib.sampling.greso import Greso

POOL = [f"p{i:03d}" for i in range(40)]


def keep_probability(sampler: Greso, prompt_id: str) -> tuple[float, str]:
    decision = sampler._decide(prompt_id, sampler.epoch)
    return decision.keep_probability, decision.reason


def test_keep_probability_is_p_to_the_length_of_the_trailing_run() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    assert keep_probability(sampler, "p000") == (1.0, "no history")
    sampler.observe([Observation("p000", "all_wrong")])
    assert keep_probability(sampler, "p000") == (0.5, "all_wrong × 1")
    sampler.observe([Observation("p000", "all_wrong")] * 2)
    assert keep_probability(sampler, "p000") == (0.125, "all_wrong × 3")
    # A run of the other class begins anew; a mixed group ends it.
    sampler.observe([Observation("p000", "all_right")])
    assert keep_probability(sampler, "p000") == (0.5, "all_right × 1")
    sampler.observe([Observation("p000", "mixed")])
    assert keep_probability(sampler, "p000") == (1.0, "mixed")


def test_exploration_is_the_floor() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    sampler.observe([Observation("p000", "all_right")] * 50)
    assert keep_probability(sampler, "p000") == (0.01, "all_right × 50")


def test_an_ungraded_group_says_nothing() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    sampler.observe([Observation("p000", "all_right"), Observation("p000", "ungraded")])
    assert keep_probability(sampler, "p000") == (0.5, "all_right × 1")


def test_controllers_move_once_a_step_from_the_second_epoch_on() -> None:
    sampler = Greso(GresoSampler(), POOL, seed=0)
    outcomes = [Observation("p000", "all_right")] * 2 + [Observation("p001", "mixed")] * 8
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
    sampler = Greso(GresoSampler(step=0.3), POOL, seed=0)
    sampler.propose(len(POOL))
    for _ in range(5):
        sampler.observe([Observation("p000", "all_right")])
        sampler.end_step()
    assert sampler.metrics()["p_right"] == 0.05
    assert sampler.metrics()["p_wrong"] == 0.95


def test_the_prior_is_not_part_of_the_first_step() -> None:
    history = [Observation(p, "all_right") for p in POOL]
    sampler = make_sampler(GresoSampler(step=0.3), POOL, history, seed=0)
    sampler.propose(1000)  # the whole pool: the second epoch begins
    sampler.end_step()
    assert sampler.metrics()["p_right"] == 0.5


def test_a_pool_of_skipped_prompts_ends_the_proposal() -> None:
    history = [Observation(p, "all_wrong") for p in POOL for _ in range(20)]
    sampler = make_sampler(GresoSampler(), POOL, history, seed=0)
    decisions = sampler.propose(10)
    assert len(decisions) == len(POOL)
    assert sum(d.keep for d in decisions) < 10


def test_a_prompt_is_kept_once_a_step() -> None:
    sampler = make_sampler(GresoSampler(), POOL, [], seed=0)
    first, second = sampler.propose(30), sampler.propose(30)
    kept = [d.prompt_id for d in first + second if d.keep]
    assert len(kept) == len(set(kept)) == len(POOL)
    sampler.end_step()
    assert sum(d.keep for d in sampler.propose(30)) == 30


outcomes = st.sampled_from(["all_right", "all_wrong", "mixed", "ungraded"])


@given(
    st.lists(st.tuples(st.integers(1, 15), st.lists(outcomes, min_size=15, max_size=15)), max_size=8),
    st.data(),
)
def test_a_restored_sampler_decides_as_if_never_stopped(steps: list, data: st.DataObject) -> None:
    def play(sampler: Greso, part: list) -> list:
        made = []
        for n, results in part:
            decisions = sampler.propose(n)
            kept = [d.prompt_id for d in decisions if d.keep]
            sampler.observe([Observation(p, r) for p, r in zip(kept, results, strict=False)])
            sampler.end_step()
            made += decisions
        return made

    straight = play(Greso(GresoSampler(), POOL, seed=7), steps)
    cut = data.draw(st.integers(0, len(steps)))
    before = Greso(GresoSampler(), POOL, seed=7)
    first = play(before, steps[:cut])
    after = Greso(GresoSampler(), POOL, seed=7)
    after.load_state_dict(before.state_dict())
    assert first + play(after, steps[cut:]) == straight
