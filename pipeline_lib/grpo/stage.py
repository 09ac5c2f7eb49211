"""One GRPO stage from its files: load, train, save the policy under its id."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pipeline_lib.atomic import write_text
from pipeline_lib.grpo.job import TrainJob, TrainResult, read_job
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.policy import Policy, load_policy, policy_id_of, resolve_device, save_policy
from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import Rollout, SamplingParams, make_engine, roll_out
from pipeline_lib.sampling import make_sampler
from pipeline_lib.sampling.priors import make_prior


def run_job(directory: Path, before_step: Callable[[], None]) -> TrainResult:
    """Train the stage in `directory` to its end and save the policy under its id."""
    job, prompts, history = read_job(directory)
    policy = _load(job, trainable=True)
    reference = _load(job, trainable=False) if job.train.loss.kl_coefficient > 0 else None
    by_id = {prompt.prompt_id: prompt for prompt in prompts}
    prior = make_prior(job.train.sampler, prompts, seed=job.seed, device=resolve_device(job.device))
    with Grader() as grader:
        trainer = Trainer(
            policy=policy,
            policy_id=job.policy_id,
            reference=reference,
            sampler=make_sampler(
                job.train.sampler, list(by_id), history, job.seed, group_size=job.train.group_size, prior=prior
            ),
            roll_out=_roller(job, policy, by_id, grader),
            config=job.train,
            temperature=job.generation.temperature,
            directory=directory,
        )
        ended_early = trainer.train(before_step)
    if prior is not None:
        prior.save(directory / "prior.jsonl")
    policy_id, policy_path = _save_under_its_id(policy, Path(job.policies_dir))
    result = TrainResult(
        policy_id=policy_id,
        policy_path=str(policy_path),
        n_parameters=sum(p.numel() for p in policy.model.parameters()),
        steps=trainer.step,
        ended_early=ended_early,
    )
    write_text(directory / "result.json", result.model_dump_json(indent=2))
    return result


def _load(job: TrainJob, *, trainable: bool) -> Policy:
    return load_policy(
        job.policy_path,
        device=resolve_device(job.device),
        dtype=getattr(torch, job.dtype),
        trainable=trainable,
    )


def _roller(
    job: TrainJob, policy: Policy, by_id: dict[str, Prompt], grader: Grader
) -> Callable[[Sequence[str], int], Rollout]:
    engine = make_engine(job.generation.engine, policy)
    params = SamplingParams.of(job.generation, job.train.group_size)

    def roll(prompt_ids: Sequence[str], number: int) -> Rollout:
        seed = job.seed * 1_000_003 + number
        return roll_out(policy, engine, grader.grade, [by_id[i] for i in prompt_ids], params, seed)

    return roll


def _save_under_its_id(policy: Policy, policies: Path) -> tuple[str, Path]:
    unnamed = policies / f".unnamed-{os.getpid()}"
    save_policy(policy, unnamed)
    policy_id = policy_id_of(unnamed)
    path = policies / policy_id
    if path.exists():
        shutil.rmtree(unnamed)
    else:
        unnamed.rename(path)
    return policy_id, path
