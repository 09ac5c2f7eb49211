"""A stage whose sampler finds nothing to learn from ends early and says so; none loops for ever or aborts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_cases import parameters, scripted, tiny_policy, torch_training

from pipeline_lib.config import (
    DynamicSampler,
    GresoSampler,
    PosteriorSampler,
    Ramp,
    Refill,
    Sampler,
    Train,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.grpo.records import finished_steps
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.policy import Policy
from pipeline_lib.sampling import Observation, make_sampler

MIXED, RIGHT, WRONG, UNGRADED = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [None, None]
SELECTIVE = [DynamicSampler(), GresoSampler(), PosteriorSampler(), VarianceSigmoidSampler()]
every_that_refills = pytest.mark.parametrize("sampler", SELECTIVE, ids=lambda sampler: sampler.type)


def trainer_of(
    directory: Path,
    sampler: Sampler,
    rewards_of: Callable[[str, int], Sequence[float | None]],
    *,
    history: Sequence[Observation] = (),
    pool: int = 12,
    steps: int = 30,
    policy: Policy | None = None,
) -> Trainer:
    config = Train(
        sampler=sampler,
        steps=steps,
        prompts_per_step=4,
        group_size=2,
        refill=Refill(max_rounds=2, min_prompts=1),
        checkpoint_every=100,
    )
    return Trainer(
        backend=torch_training(policy or tiny_policy()),
        policy_id="policy",
        reference=None,
        sampler=make_sampler(sampler, [f"p{i:02d}" for i in range(pool)], history, 3, group_size=2),
        roll_out=scripted(rewards_of),
        config=config,
        max_tokens=10,
        directory=directory,
    )


@pytest.mark.parametrize("rewards", [RIGHT, WRONG, UNGRADED], ids=["right", "wrong", "ungraded"])
@every_that_refills
def test_without_signal_it_ends_at_the_second_step_and_says_why(sampler: Any, rewards: list, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, sampler, lambda p, call: rewards)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "nothing left to learn at step 2" in ended_early
    assert trainer.step == 2
    assert finished_steps(tmp_path / "records") == [1, 2]


@every_that_refills
def test_what_signal_there_is_comes_first(sampler: Any, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, sampler, lambda p, call: MIXED if call < 4 else WRONG)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "nothing left to learn" in ended_early
    assert 4 <= trainer.step <= 10


@every_that_refills
def test_a_pool_smaller_than_a_batch_trains_on_to_the_last_step(sampler: Any, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, sampler, lambda p, call: MIXED, pool=3, steps=4)
    assert trainer.train(lambda: None) is None
    assert trainer.step == 4


def test_uniform_goes_through_the_whole_pool_before_it_ends_and_changes_nothing_without_signal(tmp_path: Path) -> None:
    policy = tiny_policy()
    before = parameters(policy)
    trainer = trainer_of(tmp_path, UniformSampler(), lambda p, call: UNGRADED if call % 2 else WRONG, policy=policy)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "nothing left to learn at step 6" in ended_early  # 12 prompts, 4 a step, twice
    assert "4 could not be graded" in ended_early
    assert torch.equal(parameters(policy), before)


def test_uniform_goes_on_while_any_prompt_of_the_pool_has_signal(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, UniformSampler(), lambda p, call: MIXED if p == "p03" else RIGHT, steps=15)
    assert trainer.train(lambda: None) is None
    assert trainer.step == 15


@pytest.mark.parametrize(
    "sampler",
    [
        GresoSampler(exploration=1e-15),
        VarianceSigmoidSampler(
            exploration=Ramp(start=1e-15, end=1e-15, over=1),
            hard_exploration=0,
            sharpness=Ramp(start=1000, end=1000, over=1),
        ),
    ],
    ids=lambda sampler: sampler.type,
)
def test_a_pool_that_is_skipped_whole_ends_the_stage(sampler: Any, tmp_path: Path) -> None:
    history = [Observation(f"p{i:02d}", 8, 8) for i in range(12) for _ in range(60)]
    trainer = trainer_of(tmp_path, sampler, lambda p, call: pytest.fail("all are skipped"), history=history)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "of 12 prompts 12 were skipped" in ended_early
    assert trainer.step == 2


def test_posterior_never_skips_the_whole_pool(tmp_path: Path) -> None:
    """Its likeliest prompt is always kept, however unlikely it is."""
    history = [Observation(f"p{i:02d}", 8, 8) for i in range(12) for _ in range(i)]
    sampler = PosteriorSampler(exploration=1e-15, sharpness=8, half_life=10**6)
    calls: list[list[str]] = []
    trainer = trainer_of(tmp_path, sampler, lambda p, call: calls.append([p]) or RIGHT, history=history)
    assert trainer.train(lambda: None) is not None
    assert calls[0] == ["p00"]
