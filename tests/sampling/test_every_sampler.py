"""What holds for every sampler: whole epochs, bounded proposals, floors, and decisions that can be made again."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import EXPLORATION, POOL, SAMPLERS, observed, play, sampler_of

from pipeline_lib.config import Sampler
from pipeline_lib.records import Outcome
from pipeline_lib.sampling import PromptSampler

every_sampler = pytest.mark.parametrize("config", SAMPLERS.values(), ids=SAMPLERS.keys())
OUTCOMES: list[Outcome] = ["all_right", "all_wrong", "mixed", "ungraded"]


@pytest.mark.parametrize("n", [3, 7, 8, 11, 15])
@every_sampler
def test_every_prompt_is_decided_on_once_an_epoch_and_kept_once_a_step(config: Sampler, n: int) -> None:
    pool = POOL[:15]  # no multiple of most n: batches cross the ends of epochs
    sampler = sampler_of(config, pool)
    rng = random.Random(n)
    by_epoch: dict[int, list[str]] = {}
    while sampler.epoch < 6:
        kept: list[str] = []
        for _ in range(2):
            decisions = sampler.propose(n)
            for decision in decisions:
                by_epoch.setdefault(decision.epoch, []).append(decision.prompt_id)
            new = [d.prompt_id for d in decisions if d.keep]
            sampler.observe([observed(p, rng.choice(OUTCOMES)) for p in new])
            kept += new
        assert len(kept) == len(set(kept)) <= 2 * n
        sampler.end_step()
    for epoch in range(6):
        assert sorted(by_epoch[epoch]) == pool
    assert by_epoch[0] != by_epoch[1]


def test_a_batch_across_the_end_of_an_epoch_by_hand() -> None:
    sampler = sampler_of(SAMPLERS["uniform"], ["a", "b", "c"])
    first, second, third = ([d[:2] for d in play(sampler, [2], lambda d: "mixed")] for _ in range(3))
    assert [epoch for _, epoch in first] == [0, 0]
    # The third prompt of epoch 0, and one of epoch 1 that is another one.
    assert [epoch for _, epoch in second] == [0, 1]
    assert len({p for p, _ in second}) == 2
    # The two that are left of epoch 1, whichever was passed over in the second step.
    assert [epoch for _, epoch in third] == [1, 1]
    assert {p for p, _ in third} | {second[1][0]} == {"a", "b", "c"}
    assert sampler.epoch == 2


@every_sampler
def test_a_pool_smaller_than_a_batch_is_rolled_out_once_a_step(config: Sampler) -> None:
    sampler = sampler_of(config, POOL[:3])
    for step in range(4):
        kept = [d.prompt_id for _ in range(3) for d in sampler.propose(8) if d.keep]
        assert sorted(kept) == POOL[:3]
        assert sampler.epoch == step + 1
        sampler.observe([observed(p, "mixed") for p in kept])
        sampler.end_step()


@pytest.mark.parametrize("outcome", OUTCOMES)
@every_sampler
def test_a_proposal_ends_and_prompts_come_back_whatever_the_outcomes(config: Sampler, outcome: Outcome) -> None:
    pool = POOL[:8]
    sampler = sampler_of(config, pool)
    kept = Counter(d.prompt_id for d in play(sampler, [3] * 800, lambda d: outcome) if d.keep)
    assert set(kept) == set(pool)
    assert min(kept.values()) >= 2
    assert len(sampler.propose(10**9)) <= len(pool)


@every_sampler
def test_nothing_graded_teaches_nothing(config: Sampler) -> None:
    sampler = sampler_of(config)
    made = play(sampler, [16] * 20, lambda d: "ungraded")
    assert {d.keep_probability for d in made} == {1.0}
    assert all(value == sampler_of(config).metrics()[key] for key, value in knobs(sampler).items())


def knobs(sampler: PromptSampler) -> dict[str, float]:
    return {key: value for key, value in sampler.metrics().items() if key in {"p_right", "p_wrong", "threshold"}}


@every_sampler
def test_metrics_are_finite_json_before_and_after_steps(config: Sampler) -> None:
    sampler = sampler_of(config)
    before = sampler.metrics()
    play(sampler, [16] * 5, lambda d: "mixed")
    for metrics in (before, sampler.metrics()):
        assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
        assert metrics["epoch"] >= 0 and metrics["revivals"] == 0
    assert json.dumps(sampler.state_dict())  # plain values only: it goes into a checkpoint


@every_sampler
def test_a_revival_is_a_kept_prompt_that_was_zero_variance_and_came_out_mixed(config: Sampler) -> None:
    history = [observed("p000", "all_wrong"), observed("p001", "mixed"), observed("p002", "all_right")]
    sampler = sampler_of(config, POOL[:4], history)
    sampler.observe([observed("p000", "mixed"), observed("p001", "mixed"), observed("p002", "all_right")])
    assert sampler.metrics()["revivals"] == 0  # of the last finished step, and there is none
    sampler.end_step()
    assert sampler.metrics()["revivals"] == 1
    sampler.observe([observed("p000", "mixed")])
    sampler.end_step()
    assert sampler.metrics()["revivals"] == 0


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Sampler, list[tuple[str, Any]]]:
    """A sampler and what is done with it: proposals, rollouts of what was kept, ends of steps."""
    config = draw(st.sampled_from(list(SAMPLERS.values())))
    outcomes = st.lists(st.sampled_from(OUTCOMES), min_size=15, max_size=15)
    event = st.one_of(
        st.tuples(st.just("round"), st.tuples(st.integers(0, 15), outcomes)), st.tuples(st.just("end"), st.none())
    )
    return config, draw(st.lists(event, max_size=30))


def follow(sampler: PromptSampler, events: list[tuple[str, Any]]) -> list[Any]:
    seen: list[Any] = []
    for kind, what in events:
        if kind == "end":
            sampler.end_step()
            seen.append(sampler.metrics())
        else:
            decisions = sampler.propose(what[0])
            kept = [d.prompt_id for d in decisions if d.keep]
            sampler.observe([observed(p, outcome) for p, outcome in zip(kept, what[1], strict=False)])
            seen += decisions
    return seen


@settings(max_examples=60)
@given(worlds(), st.data())
def test_restored_at_any_moment_it_decides_as_if_never_stopped(world: Any, data: st.DataObject) -> None:
    config, events = world
    pool = POOL[:15]
    straight = follow(sampler_of(config, pool), events)
    cut = data.draw(st.integers(0, len(events)))
    before, after = sampler_of(config, pool), sampler_of(config, pool)
    first = follow(before, events[:cut])
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + follow(after, events[cut:]) == straight


@settings(max_examples=60)
@given(worlds())
def test_keep_probabilities_are_between_the_floor_and_one(world: Any) -> None:
    config, events = world
    decisions = [seen for seen in follow(sampler_of(config, POOL[:15]), events) if not isinstance(seen, dict)]
    floor = EXPLORATION.get(config.type, 1.0)
    assert all(floor <= d.keep_probability <= 1 for d in decisions)
    assert all(d.keep for d in decisions if d.keep_probability == 1)


@every_sampler
def test_other_seeds_give_other_orders_and_draws(config: Sampler) -> None:
    made = [play(sampler_of(config, seed=seed), [16] * 10, lambda d: "all_right") for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="the pool is empty"):
        sampler_of(SAMPLERS["uniform"], [])
