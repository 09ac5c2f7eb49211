"""An engine with weights of its own has the policy's newest before it samples: at the start, step by step, resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from grpo_cases import parameters, random_groups, tiny_policy, torch_training

from pipeline_lib.config import Train, UniformSampler, Validation
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import Rollout
from pipeline_lib.sampling import make_sampler

POOL = [f"p{i}" for i in range(4)]


class Stopped(Exception):
    pass


class Copy:
    """What an engine holds of the policy; every rollout is checked to be of the policy as it is."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.held: torch.Tensor | None = None
        self.sampled_from: list[torch.Tensor] = []

    def hand_over(self) -> None:
        self.held = parameters(self.policy)

    def roll_out(self, prompt_ids: Sequence[str], number: int) -> Rollout:
        self.check()
        groups = random_groups(tiny_policy(seed=1), [[1.0, 0.0, 0.0]] * len(prompt_ids), seed=number)
        named = [
            RolloutGroup(i, tuple(replace(t, prompt_id=i) for t in g.trajectories))
            for i, g in zip(prompt_ids, groups, strict=True)
        ]
        return Rollout(named, 0.5, 0.25, 10)

    def validate(self) -> float:
        self.check()
        return 0.5

    def check(self) -> None:
        assert self.held is not None and torch.equal(self.held, parameters(self.policy))
        self.sampled_from.append(self.held)


def train(directory: Path, before_step: Callable[[], None] = lambda: None) -> Copy:
    policy = tiny_policy(seed=1)
    copy = Copy(policy)
    config = Train(
        steps=4,
        prompts_per_step=4,
        group_size=3,
        learning_rate=1e-3,
        sampler=UniformSampler(),
        checkpoint_every=1,
        validation=Validation(every=1),
    )
    trainer = Trainer(
        backend=torch_training(policy),
        policy_id="start",
        reference=None,
        sampler=make_sampler(config.sampler, POOL, [], seed=0, group_size=3),
        roll_out=copy.roll_out,
        config=config,
        max_tokens=10,
        directory=directory,
        validate=copy.validate,
        hand_over=copy.hand_over,
    )
    trainer.train(before_step)
    return copy


def test_rollouts_and_validations_are_sampled_from_the_newest_weights(tmp_path: Path) -> None:
    sampled_from = train(tmp_path).sampled_from
    assert len(sampled_from) == 8  # a rollout and a validation in each step
    changed = [not torch.equal(before, after) for before, after in pairwise(sampled_from)]
    assert changed == [True, False, True, False, True, False, True]


def test_a_resumed_stage_samples_from_the_weights_of_its_checkpoint(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole").sampled_from
    steps = iter(range(10))

    def stop_before_the_third() -> None:
        if next(steps) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        train(tmp_path / "stopped", stop_before_the_third)
    resumed = train(tmp_path / "stopped").sampled_from
    assert len(resumed) == 4
    assert all(torch.equal(one, other) for one, other in zip(resumed, whole[4:], strict=True))
    assert not torch.equal(resumed[0], whole[0])
