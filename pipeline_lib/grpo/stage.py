"""One GRPO stage from its files: load, train, save the policy under its id."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import torch

from pipeline_lib.atomic import fsync_path, write_text
from pipeline_lib.evaluation import evaluate_groups
from pipeline_lib.grpo.backends import make_backend
from pipeline_lib.grpo.job import TrainJob, TrainResult, read_job, read_validation
from pipeline_lib.grpo.lora import add_adapters
from pipeline_lib.grpo.ranks import Ranks, join_ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.grpo.update import Reference
from pipeline_lib.policy import (
    TokenBatch,
    load_policy,
    policy_id_of,
    resolve_device,
    save_policy,
    token_logprobs,
)
from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import Rollout, SamplingParams, check_agreement, make_engine, roll_out
from pipeline_lib.rollout.identical import identical_in_words, identical_samples
from pipeline_lib.sampling import make_sampler
from pipeline_lib.sampling.priors import make_prior

logger = logging.getLogger(__name__)


def run_job(directory: Path, before_step: Callable[[], None], *, launched: bool = False) -> TrainResult:
    """Train the stage in `directory` to its end and save the policy under its id.

    Every process that was `launched` by torch.distributed.run calls it; the first one writes.
    """
    job, prompts, history = read_job(directory)
    device = _own_device(job, int(os.environ["LOCAL_RANK"]) if launched else 0)
    ranks = join_ranks(device) if launched else Ranks()
    trained = _load_trained(job, device)
    backend = make_backend(job.train, trained, job.generation.temperature, ranks)
    by_id = {prompt.prompt_id: prompt for prompt in prompts}
    prior = make_prior(job.train.sampler, prompts, seed=job.seed, device=device)
    with Grader() as grader, closing(_Rolling(job, backend.trained, grader, ranks)) as rolling:
        trainer = Trainer(
            backend=backend,
            policy_id=job.policy_id,
            reference=_reference(job, backend.trained, device) if job.train.needs_reference else None,
            sampler=make_sampler(
                job.train.sampler, list(by_id), history, job.seed, group_size=job.train.group_size, prior=prior
            ),
            roll_out=rolling.among(by_id, job.train.group_size),
            config=job.train,
            max_tokens=job.generation.max_tokens,
            directory=directory,
            validate=None if job.train.validation is None else _validator(directory, job, rolling),
            hand_over=rolling.hand_over,
        )
        ended_early = trainer.train(before_step)
        taken = job.train.validation is not None and job.train.validation.take_best
        taken_step = trainer.take_best() if taken else trainer.step
    if ranks.first:
        if prior is not None:
            prior.save(directory / "prior.jsonl")
        n_parameters, policy_id, policy_path = _save(backend.trained, Path(job.policies_dir))
        result = TrainResult(
            policy_id=policy_id,
            policy_path=str(policy_path),
            n_parameters=n_parameters,
            steps=trainer.step,
            taken_step=taken_step,
            ended_early=ended_early,
        )
        write_text(directory / "result.json", result.model_dump_json(indent=2))
    return ranks.from_first(result if ranks.first else None)  # type: ignore[return-value]


def _own_device(job: TrainJob, number: int) -> torch.device:
    device = resolve_device(job.device)
    if device.type != "cuda":
        return device
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"train.backend.processes={job.train.backend.processes}: each needs a GPU of its own, and there are "
            f"{torch.cuda.device_count()}; lower it"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _load_trained(job: TrainJob, device: torch.device) -> Trained:
    # Float32 beside adapters as well: what they learn would be lost in merging them into rounder weights.
    policy = load_policy(job.policy_path, device=device, dtype=getattr(torch, job.dtype), trainable=True)
    return Trained(policy, None if job.train.lora is None else add_adapters(policy, job.train.lora, job.seed))


def _reference(job: TrainJob, trained: Trained, device: torch.device) -> Reference:
    """Log-probs under the policy that the stage began with: the adapters' base, or a frozen copy."""
    temperature = job.generation.temperature
    if trained.adapters is None:
        # As the policy itself is loaded, so that both say the same before the first step.
        frozen = load_policy(job.policy_path, device=device, dtype=getattr(torch, job.dtype), trainable=True)
        frozen.model.requires_grad_(False)

        @torch.no_grad()
        def of_frozen(batch: TokenBatch) -> torch.Tensor:
            return token_logprobs(frozen, batch, temperature=temperature).logprobs_BT

        return of_frozen

    @torch.no_grad()
    def without_adapters(batch: TokenBatch) -> torch.Tensor:
        with trained.before_training() as policy:
            return token_logprobs(policy, batch, temperature=temperature).logprobs_BT

    return without_adapters


class _Rolling:
    """Rolls out this process's share of the prompts; everyone gets all groups, in the prompts' order."""

    def __init__(self, job: TrainJob, trained: Trained, grader: Grader, ranks: Ranks) -> None:
        self._job, self._trained, self._grader, self._ranks = job, trained, grader, ranks
        self._engine = make_engine(job.generation, trained.policy)
        self._told_of_identical = False

    def hand_over(self) -> None:
        """Give the engine the weights as they are. Raises EngineMismatch where it goes on sampling from others."""
        if self._job.generation.engine.type == "transformers":  # it samples from the policy itself
            return
        if self._ranks.first:
            self._engine.load_weights(self._trained.whole_weights())
        self._ranks.gather(None)
        check_agreement(self._engine, self._trained.policy, temperature=self._job.generation.temperature)

    def close(self) -> None:
        self._engine.close()

    def among(self, by_id: Mapping[str, Prompt], samples: int) -> Callable[[Sequence[str], int], Rollout]:
        """(prompt ids, number of the draw) -> groups of `samples` completions."""
        params, ranks = SamplingParams.of(self._job.generation, samples), self._ranks

        def roll(prompt_ids: Sequence[str], number: int) -> Rollout:
            seed = (self._job.seed * 1_000_003 + number) * ranks.size + ranks.rank
            own = [by_id[i] for i in prompt_ids[ranks.rank :: ranks.size]]
            rollout = roll_out(self._trained.policy, self._engine, self._grader.grade, own, params, seed)
            self._tell_of_identical(rollout)
            parts = ranks.gather(rollout)
            return Rollout(
                groups=[parts[i % ranks.size].groups[i // ranks.size] for i in range(len(prompt_ids))],
                generate_seconds=max(part.generate_seconds for part in parts),
                verify_seconds=max(part.verify_seconds for part in parts),
                generated_tokens=sum(part.generated_tokens for part in parts),
            )

        return roll

    def _tell_of_identical(self, rollout: Rollout) -> None:
        """Once a stage, in the worker's log, which is shown as it comes."""
        if not self._told_of_identical and identical_samples(rollout.groups):
            self._told_of_identical = True
            logger.warning("%s", identical_in_words(rollout.groups))


def _validator(directory: Path, job: TrainJob, rolling: _Rolling) -> Callable[[], float | None]:
    """avg@k of all validation prompts, each time from the same draws; None where nothing could be graded."""
    assert job.train.validation is not None
    by_id = {prompt.prompt_id: prompt for prompt in read_validation(directory)}
    roll = rolling.among(by_id, job.train.validation.samples)

    def accuracy() -> float | None:
        metrics = evaluate_groups(roll(list(by_id), 0).groups, [])
        return metrics[0].value if metrics else None

    return accuracy


def _save(trained: Trained, policies: Path) -> tuple[int, str, Path]:
    """(parameters, id, path) of the policy, adapters merged into it."""
    if trained.adapters is not None:
        trained.adapters.merge_and_unload()  # in place: the policy is a plain model again
    policies.mkdir(parents=True, exist_ok=True)
    with (policies / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that whatever is unnamed now is what a killed process has left
        for abandoned in policies.glob(".*unnamed*"):
            shutil.rmtree(abandoned)
        unnamed = policies / ".unnamed"
        save_policy(trained.policy, unnamed)
        policy_id = policy_id_of(unnamed)
        path = policies / policy_id
        if path.exists():
            shutil.rmtree(unnamed)
        else:
            unnamed.rename(path)
            fsync_path(policies)
    return sum(p.numel() for p in trained.policy.model.parameters()), policy_id, path
