"""How a stage ends: by its steps, by how far the policy has moved, by numbers that are not finite."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from grpo_cases import (
    chain_prompts,
    group,
    parameters,
    random_groups,
    reference_of,
    tiny_policy,
    torch_training,
    write_training_job,
)
from safetensors.torch import load_file

from pipeline_lib.config import DapoLoss, Lora, Train, UniformSampler, Validation
from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.job import read_result
from pipeline_lib.grpo.stage import run_job
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.grpo.update import NonFiniteUpdate
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import Rollout, read_groups
from pipeline_lib.sampling import make_sampler

POOL = [f"p{i}" for i in range(4)]


def trainer_of(policy: Policy, directory: Path, bad_steps: set[int], **settings: Any) -> Trainer:
    """Of random groups; in `bad_steps` one log-prob is not a number."""

    def roll_out(prompt_ids: Any, number: int) -> Rollout:
        groups = random_groups(tiny_policy(seed=1), [[1.0, 0.0, 0.0]] * len(prompt_ids), seed=number)
        groups = [
            RolloutGroup(i, tuple(replace(t, prompt_id=i) for t in g.trajectories))
            for i, g in zip(prompt_ids, groups, strict=True)
        ]
        if number // 1000 in bad_steps:
            first = groups[1].trajectories[0]
            bad = replace(first, behaviour_logprobs=(math.nan, *first.behaviour_logprobs[1:]))
            groups[1] = replace(groups[1], trajectories=(bad, *groups[1].trajectories[1:]))
        return Rollout(groups, 0.5, 0.25, 10)

    config = Train(steps=4, prompts_per_step=4, group_size=3, learning_rate=1e-4, sampler=UniformSampler(), **settings)
    return Trainer(
        backend=torch_training(policy, 1e-4),
        policy_id="start",
        reference=reference_of(tiny_policy(seed=1)) if config.needs_reference else None,
        sampler=make_sampler(config.sampler, POOL, [], seed=0, group_size=3),
        roll_out=roll_out,
        config=config,
        max_tokens=10,
        directory=directory,
    )


def step_rows(directory: Path) -> list[dict[str, Any]]:
    files = sorted((directory / "records").glob("step-*/train_steps.parquet"))
    return [pq.read_table(file).to_pylist()[0] for file in files]


def test_a_step_that_is_not_finite_stops_the_stage_and_keeps_its_batch(tmp_path: Path) -> None:
    policy = tiny_policy(seed=1)
    before = parameters(policy)
    trainer = trainer_of(policy, tmp_path, bad_steps={1})
    with pytest.raises(NonFiniteUpdate, match=r"step 1: loss nan, .*micro-batch of prompts p\d.*non_finite"):
        trainer.train(lambda: None)
    assert torch.equal(parameters(policy), before)
    kept = read_groups(tmp_path / "non_finite" / "step-000001" / "rollouts.parquet")
    assert sorted(g.prompt_id for g in kept) == POOL
    assert any(math.isnan(x) for g in kept for t in g.trajectories for x in t.behaviour_logprobs)
    assert "not applied" in (tmp_path / "non_finite" / "step-000001" / "what.txt").read_text()
    assert step_rows(tmp_path) == []


def test_as_many_steps_as_the_config_allows_are_passed_over(tmp_path: Path) -> None:
    policy = tiny_policy(seed=1)
    trainer = trainer_of(policy, tmp_path, bad_steps={2}, max_nonfinite_steps=1)
    assert trainer.train(lambda: None) is None
    rows = step_rows(tmp_path)
    assert [row["non_finite"] for row in rows] == [False, True, False, False]
    assert rows[1]["loss"] is None and rows[1]["grad_norm"] is None and rows[1]["rollouts"] == 12
    assert rows[1]["num_tokens"] == rows[0]["num_tokens"] > 0
    assert torch.isfinite(parameters(policy)).all()
    assert (tmp_path / "non_finite" / "step-000002").exists()


def test_one_more_ends_it_also_after_a_resume(tmp_path: Path) -> None:
    allowed = {"max_nonfinite_steps": 1, "checkpoint_every": 2}
    with pytest.raises(NonFiniteUpdate, match="step 3"):
        trainer_of(tiny_policy(seed=1), tmp_path, bad_steps={2, 3}, **allowed).train(lambda: None)
    with pytest.raises(NonFiniteUpdate, match="step 3"):
        trainer_of(tiny_policy(seed=1), tmp_path, bad_steps={3}, **allowed).train(lambda: None)


def test_a_policy_that_has_moved_far_enough_ends_the_stage(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_policy(seed=1), tmp_path, bad_steps=set(), stage_kl_limit=1e-3)
    said = trainer.train(lambda: None)
    assert said is not None and "stage_kl_limit 0.001" in said and f"step {trainer.step} of 4" in said
    rows = step_rows(tmp_path)
    assert 2 <= len(rows) < 4
    assert [row["kl"] > 1e-3 for row in rows] == [False] * (len(rows) - 1) + [True]
    # Started again it has nothing to do, and says the same.
    again = trainer_of(tiny_policy(seed=1), tmp_path, bad_steps=set(), stage_kl_limit=1e-3)
    assert again.train(lambda: None) == said
    assert len(step_rows(tmp_path)) == len(rows)


def test_within_the_limit_a_stage_goes_on(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_policy(seed=1), tmp_path, bad_steps=set(), stage_kl_limit=1e6)
    assert trainer.train(lambda: None) is None
    assert len(step_rows(tmp_path)) == 4


@pytest.mark.parametrize("kl", [0.0, 0.05])
def test_a_stage_with_adapters_ends_in_a_plain_policy(tmp_path: Path, kl: float) -> None:
    train = Train(
        steps=3,
        prompts_per_step=4,
        group_size=4,
        learning_rate=1e-2,
        lora=Lora(rank=2, alpha=4),
        loss=DapoLoss(kl_coefficient=kl),
        checkpoint_every=2,
    )
    directory = write_training_job(tmp_path / "stage", train, chain_prompts(8))
    result = run_job(directory, lambda: None)
    start, trained = tiny_policy(), load_policy(result.policy_path, device=torch.device("cpu"), dtype=torch.float32)
    assert result.n_parameters == sum(p.numel() for p in start.model.parameters())
    before, after = start.model.state_dict(), trained.model.state_dict()
    assert before.keys() == after.keys()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed and all("proj" in name for name in changed)
    for name in changed:
        assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-4) <= 2
    rows = step_rows(directory)
    assert all(row["grad_norm"] > 0 for row in rows)
    if kl:
        assert rows[0]["kl"] == pytest.approx(0.0, abs=1e-7) and rows[-1]["kl"] > 0
    # A stage that was stopped after its checkpoint ends in the same bytes.
    (directory / "result.json").unlink()
    for name in ("records/step-000003", "checkpoints/step-000003"):
        for file in (directory / name).iterdir():
            file.unlink()
        (directory / name).rmdir()
    assert run_job(directory, lambda: None).policy_id == result.policy_id
    assert read_result(directory) == result


def test_the_best_checkpoint_on_the_validation_sets_is_kept_and_handed_on(tmp_path: Path) -> None:
    train = Train(
        steps=4,
        prompts_per_step=4,
        group_size=4,
        learning_rate=6e-3,  # far too much: the policy gets worse
        validation=Validation(every=1, samples=4, take_best=True),
        checkpoint_every=10,
        keep_last=1,
    )
    directory = write_training_job(tmp_path / "stage", train, chain_prompts(8), validation=chain_prompts(6, seed=9))
    result = run_job(directory, lambda: None)
    accuracies = [row["validation_accuracy"] for row in step_rows(directory)]
    assert len(accuracies) == 4 and accuracies[-1] < max(accuracies)
    best = accuracies.index(max(accuracies)) + 1
    assert (result.steps, result.taken_step) == (4, best)
    checkpoints = complete_checkpoints(directory / "checkpoints")
    assert [path.name for path in checkpoints] == [f"step-{best:06d}", "step-000004"]
    trained = load_policy(result.policy_path, device=torch.device("cpu"), dtype=torch.float32)
    saved = load_file(str(checkpoints[0] / "model.safetensors"))
    assert all(torch.equal(p, saved[name]) for name, p in trained.model.named_parameters())
    (directory / "result.json").unlink()
    assert run_job(directory, lambda: pytest.fail("another step was begun")) == result
    # The best one torn behind its back is trained again.
    (directory / "result.json").unlink()
    weights = checkpoints[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert run_job(directory, lambda: None) == result
    assert complete_checkpoints(directory / "checkpoints") == checkpoints


def test_ungraded_answers_are_counted_by_what_the_verifier_said(tmp_path: Path) -> None:
    trainer = trainer_of(tiny_policy(seed=1), tmp_path, bad_steps=set())
    timeout, answered = group("p0", [None, 1.0, 0.0]), group("p1", [1.0, 0.0, 0.0])
    failed = replace(timeout.trajectories[0], verifier_status="error", sample_index=3)
    unparseable = replace(answered.trajectories[1], verifier_status="unparseable_answer")
    groups = [
        RolloutGroup("p0", (*timeout.trajectories, failed)),
        RolloutGroup("p1", (answered.trajectories[0], unparseable, answered.trajectories[2])),
    ]
    trainer._roll_out = lambda prompt_ids, number: Rollout(groups, 0.0, 0.0, 1)
    trainer.train(lambda: None)
    row = step_rows(tmp_path)[0]
    counts = {name: row[name] for name in ("n_ungraded", "n_timeout", "n_error", "n_unparseable", "rollouts")}
    assert counts == {"n_ungraded": 2, "n_timeout": 1, "n_error": 1, "n_unparseable": 1, "rollouts": 7}
    assert row["reward"] == pytest.approx((0.5 + 1 / 3) / 2)
    assert json.loads(row["sampler_metrics"])
