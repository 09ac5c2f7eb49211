"""Small policies, groups, samplers' worlds and training jobs that the tests of the GRPO loop share."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from pipeline_lib.config import ChainSource, Generation, Train
from pipeline_lib.grpo.job import TrainJob, write_job
from pipeline_lib.policy import Policy, load_policy, policy_id_of
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt, RolloutGroup, Trajectory
from pipeline_lib.rollout import Rollout
from pipeline_lib.sampling import Observation

CPU = torch.device("cpu")


@cache
def _loaded() -> Policy:
    return load_policy(BUILTIN_DIRECTORY, device=CPU, dtype=torch.float32, trainable=True)


def tiny_policy(seed: int | None = None) -> Policy:
    """The built-in policy with parameters of its own; a seed nudges every one of them."""
    loaded = _loaded()
    policy = Policy(
        copy.deepcopy(loaded.model), loaded.tokenizer, loaded.eos_token_ids, loaded.pad_token_id, torch.float32
    )
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter += 0.004 * torch.randn(parameter.shape, generator=generator)
    return policy


def chain_prompts(count: int = 12, seed: int = 5, lengths: Sequence[int] = (3, 4)) -> list[Prompt]:
    source = ChainSource(kinds=["plus", "minus"], lengths=list(lengths), count=count, seed=seed)
    return [prompt for _, prompt in read_chains(source)]


def trajectory(
    prompt_id: str,
    index: int,
    *,
    reward: float | None,
    tokens: Sequence[int] = (5, 6, 2),
    prompt_tokens: Sequence[int] = (1, 4),
    logprobs: Sequence[float] | None = None,
) -> Trajectory:
    return Trajectory(
        prompt_id=prompt_id,
        sample_index=index,
        prompt_token_ids=tuple(prompt_tokens),
        completion_token_ids=tuple(tokens),
        behaviour_logprobs=tuple(logprobs if logprobs is not None else [-1.0] * len(tokens)),
        finish_reason="stop",
        text="",
        reward=reward,
        correct=reward == 1.0,
        verifier_status="timeout" if reward is None else "ok",
    )


def group(prompt_id: str, rewards: Sequence[float | None]) -> RolloutGroup:
    return RolloutGroup(prompt_id, tuple(trajectory(prompt_id, i, reward=r) for i, r in enumerate(rewards)))


def logprobs_by_hand(policy: Policy, t: Trajectory, temperature: float) -> torch.Tensor:
    """One unpadded forward of one trajectory, and log-probs straight from its raw logits."""
    tokens = torch.tensor([[*t.prompt_token_ids, *t.completion_token_ids]])
    logits_SV = policy.model(input_ids=tokens).logits[0].double() / temperature
    assert policy.suppressed_token_ids == (policy.pad_token_id,)
    logits_SV[:, policy.pad_token_id] = -math.inf
    first = len(t.prompt_token_ids)
    logprobs = [
        logits_SV[first + i - 1, token] - torch.logsumexp(logits_SV[first + i - 1], dim=-1)
        for i, token in enumerate(t.completion_token_ids)
    ]
    return torch.stack(logprobs)


def scripted(
    rewards_of: Callable[[str, int], Sequence[float | None]], calls: list[list[str]] | None = None
) -> Callable[[Sequence[str], int], Rollout]:
    """A roll_out whose groups have the rewards that `rewards_of(prompt id, nth call)` gives."""
    calls = [] if calls is None else calls

    def roll_out(prompt_ids: Sequence[str], number: int) -> Rollout:
        calls.append(list(prompt_ids))
        return Rollout([group(p, rewards_of(p, len(calls) - 1)) for p in prompt_ids], 0.5, 0.25, 10)

    return roll_out


def write_training_job(
    directory: Path,
    train: Train,
    prompts: Sequence[Prompt],
    history: Sequence[Observation] = (),
    *,
    max_tokens: int = 30,
) -> Path:
    """A stage directory as the training step prepares it."""
    directory.mkdir(parents=True, exist_ok=True)
    job = TrainJob(
        policy_path=str(BUILTIN_DIRECTORY),
        policy_id=policy_id_of(BUILTIN_DIRECTORY),
        policies_dir=str(directory.parent / "policies"),
        seed=11,
        device="cpu",
        dtype="float32",
        generation=Generation(max_tokens=max_tokens, max_prompt_tokens=32, batch_size=256),
        train=train,
    )
    write_job(directory, job, prompts, list(history))
    return directory
