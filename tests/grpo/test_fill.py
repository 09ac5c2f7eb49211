"""Filling a step's batch: rounds, refills, surplus, and pools that give too little."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from grpo_cases import scripted
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.config import (
    DynamicSampler,
    GresoSampler,
    PosteriorSampler,
    Refill,
    Train,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.grpo.fill import StepBatch, fill_batch
from pipeline_lib.records import RolloutGroup
from pipeline_lib.sampling import Observation, RoundSizer, make_sampler

MIXED, RIGHT, WRONG, UNGRADED = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [None, None]
SELECTIVE = [DynamicSampler(), GresoSampler(), PosteriorSampler(), VarianceSigmoidSampler()]
every_sampler = pytest.mark.parametrize("sampler", [UniformSampler(), *SELECTIVE], ids=lambda sampler: sampler.type)
every_that_refills = pytest.mark.parametrize("sampler", SELECTIVE, ids=lambda sampler: sampler.type)


def pool_of(n: int) -> list[str]:
    return [f"p{i:03d}" for i in range(n)]


class Loop:
    """A sampler, a sizer and the surplus of one stage, as the trainer holds them."""

    def __init__(self, sampler: Any, pool: Sequence[str], *, history: Sequence[Observation] = (), **train: Any) -> None:
        self.config = Train(sampler=sampler, **train)
        self.sampler = make_sampler(self.config.sampler, pool, history, seed=1, group_size=self.config.group_size)
        self.sizer = RoundSizer(self.config.refill, self.config.prompts_per_step)
        self.carried: list[RolloutGroup] = []
        self.calls: list[list[str]] = []

    def step(self, rewards_of: Any) -> StepBatch:
        self.calls.clear()
        batch = fill_batch(self.sampler, self.sizer, scripted(rewards_of, self.calls), self.carried, self.config)
        self.carried = batch.carried
        return batch


def ids(groups: Sequence[RolloutGroup]) -> list[str]:
    return [g.prompt_id for g in groups]


def test_uniform_trains_on_all_of_one_round() -> None:
    loop = Loop(UniformSampler(), pool_of(20), prompts_per_step=6)
    batch = loop.step(lambda p, call: WRONG if p < "p010" else MIXED)
    assert len(loop.calls) == batch.rounds == 1
    assert ids(batch.groups) == ids(batch.rolled_out) == loop.calls[0]
    assert len(batch.groups) == 6 and batch.carried == []
    assert any(not g.has_signal for g in batch.groups)
    assert [d.prompt_id for d in batch.decisions if d.keep] == loop.calls[0]


def test_greso_refills_to_exactly_the_batch() -> None:
    loop = Loop(GresoSampler(), pool_of(100), prompts_per_step=8, refill=Refill(min_prompts=1))
    batch = loop.step(lambda p, call: MIXED if int(p[1:]) % 3 == 0 else RIGHT)
    assert batch.rounds == len(loop.calls) > 1
    assert len(batch.groups) == 8
    assert all(g.has_signal for g in batch.groups)
    assert batch.groups + batch.carried == [g for g in batch.rolled_out if g.has_signal]


def test_seconds_and_tokens_add_up_over_the_rounds() -> None:
    loop = Loop(GresoSampler(), pool_of(100), prompts_per_step=8)
    batch = loop.step(lambda p, call: MIXED if int(p[1:]) % 3 == 0 else RIGHT)
    assert (batch.generate_seconds, batch.verify_seconds) == (0.5 * batch.rounds, 0.25 * batch.rounds)
    assert batch.generated_tokens == 10 * batch.rounds


def test_surplus_opens_the_next_batch() -> None:
    loop = Loop(GresoSampler(), pool_of(100), prompts_per_step=8, refill=Refill(oversample=1.5, min_prompts=1))
    first = loop.step(lambda p, call: MIXED)
    assert len(first.groups) == 8 and len(first.carried) == 4
    second = loop.step(lambda p, call: MIXED)
    assert second.groups[:4] == first.carried
    assert len(loop.calls[0]) == 6  # 1.5 · 4 missing


def test_a_batch_carried_whole_needs_no_rollout() -> None:
    loop = Loop(GresoSampler(), pool_of(60), prompts_per_step=4, refill=Refill(max_prompts=50, oversample=4.0))
    first = loop.step(lambda p, call: MIXED)
    assert len(first.carried) == 12
    second = loop.step(lambda p, call: pytest.fail("nothing is missing"))
    assert (second.rounds, second.decisions, second.rolled_out) == (0, [], [])
    assert second.groups == first.carried[:4] and second.carried == first.carried[4:]


@pytest.mark.parametrize("rewards", [RIGHT, WRONG, UNGRADED], ids=["right", "wrong", "ungraded"])
@every_that_refills
def test_rounds_are_bounded_when_no_group_has_signal(sampler: Any, rewards: list[Any]) -> None:
    loop = Loop(sampler, pool_of(1000), prompts_per_step=8, refill=Refill(max_rounds=3))
    batch = loop.step(lambda p, call: rewards)
    assert batch.rounds == 3
    assert batch.groups == [] == batch.carried
    assert len(batch.rolled_out) == 10 + 12 + 12  # 1.25 · 8, then the ceiling of 1.5 · 8


def test_what_a_short_step_found_is_trained_on() -> None:
    loop = Loop(GresoSampler(), pool_of(1000), prompts_per_step=8, refill=Refill(max_rounds=2))
    found: list[str] = []

    def third_of_a_round(prompt_id: str, call: int) -> list[float]:
        if prompt_id not in loop.calls[call][:3]:
            return WRONG
        found.append(prompt_id)
        return MIXED

    batch = loop.step(third_of_a_round)
    assert batch.rounds == 2
    assert ids(batch.groups) == found and len(found) == 6


@pytest.mark.parametrize("rewards", [RIGHT, WRONG, UNGRADED], ids=["right", "wrong", "ungraded"])
@every_sampler
def test_a_small_pool_without_signal_is_tried_within_bounds_at_each_step(sampler: Any, rewards: list[Any]) -> None:
    loop = Loop(sampler, pool_of(20), prompts_per_step=8, refill=Refill(max_rounds=4))
    for _ in range(30):
        batch = loop.step(lambda p, call: rewards)
        assert batch.rounds <= 4
        assert len(set(ids(batch.rolled_out))) == len(batch.rolled_out) <= 20
        assert ids(batch.groups) == (ids(batch.rolled_out) if sampler.type == "uniform" else [])
    assert loop.sizer.zero_variance_share == 0.95


@every_sampler
def test_fewer_prompts_than_a_batch(sampler: Any) -> None:
    loop = Loop(sampler, pool_of(3), prompts_per_step=8)
    for _ in range(3):
        batch = loop.step(lambda p, call: MIXED)
        assert sorted(ids(batch.groups)) == pool_of(3)
        assert batch.rounds == 1 and batch.carried == []


def test_a_pool_that_is_skipped_whole_gives_an_empty_batch() -> None:
    history = [Observation(p, 8, 8, False) for p in pool_of(10) for _ in range(60)]
    loop = Loop(GresoSampler(exploration=1e-15), pool_of(10), history=history, prompts_per_step=4)
    batch = loop.step(lambda p, call: pytest.fail("every prompt was skipped"))
    assert batch.groups == [] and batch.rounds == 0
    assert [d.keep for d in batch.decisions] == [False] * 10


@every_that_refills
def test_an_ungraded_group_is_dropped_and_made_up_for(sampler: Any) -> None:
    loop = Loop(sampler, pool_of(100), prompts_per_step=8)
    batch = loop.step(lambda p, call: [None, None] if call == 0 else MIXED)
    assert batch.rounds == 2
    assert ids(batch.groups + batch.carried) == loop.calls[1]


@every_that_refills
def test_equal_partial_credit_is_no_signal_and_one_loser_keeps_its_group_whole(sampler: Any) -> None:
    loop = Loop(sampler, pool_of(100), prompts_per_step=8)
    batch = loop.step(lambda p, call: [0.4] * 8 if call == 0 else [0.0, *[0.95] * 7])
    assert batch.rounds == 2
    assert ids(batch.groups + batch.carried) == loop.calls[1]
    assert {len(g.trajectories) for g in batch.groups} == {8}


def test_greso_goes_on_with_prompts_of_which_no_answer_is_correct_and_some_are_better() -> None:
    loop = Loop(GresoSampler(), pool_of(12), prompts_per_step=4)
    for _ in range(20):
        batch = loop.step(lambda p, call: [0.0, 0.2, 0.4, 0.2] if p < "p006" else WRONG)
    rolled_out = {d.prompt_id for d in batch.decisions if d.keep}
    assert {g.prompt_id for g in batch.groups} <= set(pool_of(6))
    assert all(d.keep for d in batch.decisions if d.prompt_id < "p006") and rolled_out
    assert {d.reason for d in batch.decisions if d.prompt_id < "p006"} == {"mixed"}
    assert all(d.reason.startswith("all_wrong × ") for d in batch.decisions if d.prompt_id >= "p006")


@every_sampler
def test_an_epoch_may_end_within_a_step(sampler: Any) -> None:
    loop = Loop(sampler, pool_of(10), prompts_per_step=4, refill=Refill(oversample=1.0, min_prompts=1))
    seen: list[str] = []
    for step in range(3):
        batch = loop.step(lambda p, call: MIXED)
        kept = [d.prompt_id for d in batch.decisions]
        assert len(set(kept)) == len(kept) == 4
        assert {d.epoch for d in batch.decisions} == ({0, 1} if step == 2 else {0})
        seen += kept
    assert sorted(seen[:10]) == pool_of(10)


@settings(max_examples=60)
@given(
    sampler=st.sampled_from(SELECTIVE),
    pool=st.integers(1, 30),
    prompts_per_step=st.integers(1, 8),
    n_steps=st.integers(1, 8),
    share_mixed=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    oversample=st.sampled_from([1.0, 1.25, 3.0]),
    max_prompts=st.sampled_from([None, 3, 40]),
    seed=st.integers(0, 10**6),
)
def test_no_accepted_group_is_lost_and_no_prompt_is_rolled_out_twice_a_step(
    sampler: Any,
    pool: int,
    prompts_per_step: int,
    n_steps: int,
    share_mixed: float,
    oversample: float,
    max_prompts: int | None,
    seed: int,
) -> None:
    refill = Refill(oversample=oversample, max_prompts=max_prompts, max_rounds=4)
    loop = Loop(sampler, pool_of(pool), prompts_per_step=prompts_per_step, refill=refill)
    rng = random.Random(seed)
    accepted: list[RolloutGroup] = []
    trained: list[RolloutGroup] = []
    for _ in range(n_steps):
        batch = loop.step(lambda p, call: MIXED if rng.random() < share_mixed else rng.choice([RIGHT, WRONG]))
        rolled_out = [p for call in loop.calls for p in call]
        assert len(rolled_out) == len(set(rolled_out))
        assert rolled_out == ids(batch.rolled_out) == [d.prompt_id for d in batch.decisions if d.keep]
        assert batch.rounds == len(loop.calls) <= 4
        assert len(batch.groups) <= prompts_per_step
        assert not batch.carried or len(batch.groups) == prompts_per_step
        accepted += [g for g in batch.rolled_out if g.has_signal]
        trained += batch.groups
    assert trained + loop.carried == accepted  # first in, first trained on
