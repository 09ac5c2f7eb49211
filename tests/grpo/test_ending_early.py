"""A stage whose sampler finds nothing to learn from ends early and says so; none loops for ever or aborts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from grpo_cases import parameters, scripted, tiny_policy, torch_training

from pipeline_lib.config import (
    DapoLoss,
    DynamicSampler,
    GresoSampler,
    Loss,
    PosteriorSampler,
    Ramp,
    Refill,
    Sampler,
    Train,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.grpo.trainer import NothingGraded, Trainer
from pipeline_lib.policy import Policy
from pipeline_lib.rollout import Rollout
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
    loss: Loss | None = None,
) -> Trainer:
    config = Train(
        sampler=sampler,
        steps=steps,
        prompts_per_step=4,
        group_size=2,
        refill=Refill(max_rounds=2, min_prompts=1),
        loss=loss or DapoLoss(),
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


@pytest.mark.parametrize(
    ("rewards", "why"),
    [(RIGHT, r"[1-9]\d* were all right, 0 all wrong, none mixed"), (WRONG, r"0 were all right, [1-9]\d* all wrong")],
    ids=["right", "wrong"],
)
@every_that_refills
def test_without_signal_it_ends_at_the_second_step_and_says_why(
    sampler: Any, rewards: list, why: str, tmp_path: Path
) -> None:
    trainer = trainer_of(tmp_path, sampler, lambda p, call: rewards)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and re.match(rf"nothing left to learn at step 2: .*{why}", ended_early)
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
    trainer = trainer_of(tmp_path, UniformSampler(), lambda p, call: UNGRADED if p == "p00" else WRONG, policy=policy)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "nothing left to learn at step 3" in ended_early  # 12 prompts, 4 a step
    assert torch.equal(parameters(policy), before)


@pytest.mark.parametrize("sampler", [UniformSampler(), *SELECTIVE], ids=lambda sampler: sampler.type)
def test_a_verifier_that_grades_nothing_stops_the_stage_instead_of_ending_it(sampler: Any, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, sampler, lambda p, call: MIXED if call < 2 else UNGRADED)
    with pytest.raises(NothingGraded, match="once the verifier works, the stage goes on"):
        trainer.train(lambda: None)
    assert trainer.step <= 5


@every_that_refills
def test_a_large_pool_is_seen_whole_before_nothing_is_left(sampler: Any, tmp_path: Path) -> None:
    """One prompt of many has signal: some steps find none, which is no reason to end."""
    trainer = trainer_of(tmp_path, sampler, lambda p, call: MIXED if p == "p117" else WRONG, pool=120, steps=40)
    ended_early = trainer.train(lambda: None)
    files = sorted((tmp_path / "records").glob("*/sampler_decisions.parquet"))
    decided = [pq.read_table(file).to_pylist() for file in files]
    fruitful = [n for n, rows in enumerate(decided) if any(row["prompt_id"] == "p117" and row["keep"] for row in rows)]
    since = {row["prompt_id"] for rows in decided[fruitful[-1] + 1 if fruitful else 0 :] for row in rows}
    assert ended_early is None or len(since) == 120


def test_a_batch_that_is_masked_whole_ends_the_stage_and_says_why(tmp_path: Path) -> None:
    def cut_off(prompt_ids: Sequence[str], number: int) -> Rollout:
        rollout = scripted(lambda p, call: MIXED)(prompt_ids, number)
        groups = [
            replace(g, trajectories=tuple(replace(t, finish_reason="length") for t in g.trajectories))
            for g in rollout.groups
        ]
        return replace(rollout, groups=groups)

    trainer = trainer_of(tmp_path, DynamicSampler(), lambda p, call: MIXED, loss=DapoLoss(mask_truncated=True))
    trainer._roll_out = cut_off
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "8 completions were cut off at max_tokens and masked" in ended_early


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
    history = [Observation(f"p{i:02d}", 8, 8, False) for i in range(12) for _ in range(60)]
    trainer = trainer_of(tmp_path, sampler, lambda p, call: pytest.fail("all are skipped"), history=history)
    ended_early = trainer.train(lambda: None)
    assert ended_early is not None and "of 12 prompts 12 were skipped" in ended_early
    assert trainer.step == 2


def test_posterior_never_skips_the_whole_pool(tmp_path: Path) -> None:
    """Its likeliest prompt is always kept, however unlikely it is."""
    history = [Observation(f"p{i:02d}", 8, 8, False) for i in range(12) for _ in range(i)]
    sampler = PosteriorSampler(exploration=1e-15, sharpness=8, half_life=10**6)
    calls: list[list[str]] = []
    trainer = trainer_of(tmp_path, sampler, lambda p, call: calls.append([p]) or RIGHT, history=history)
    assert trainer.train(lambda: None) is not None
    assert calls[0] == ["p00"]
