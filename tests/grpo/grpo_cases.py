"""Small policies, groups, samplers' worlds and training jobs that the tests of the GRPO loop share."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.config import ChainSource, Generation, Train
from pipeline_lib.grpo.backends import TorchTraining, make_optimizer
from pipeline_lib.grpo.job import TrainJob, write_job
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.update import Reference, UpdateMetrics
from pipeline_lib.grpo.update import update_policy as update_backend
from pipeline_lib.policy import Policy, TokenBatch, load_policy, policy_id_of, token_logprobs
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt, RolloutGroup, Trajectory
from pipeline_lib.rollout import Rollout
from pipeline_lib.sampling import Observation

CPU = torch.device("cpu")
TEMPERATURE = 0.7
MAX_TOKENS = 10
HUGE = 1e9


@cache
def _loaded() -> Policy:
    return load_policy(BUILTIN_DIRECTORY, device=CPU, dtype=torch.float32, trainable=True)


def tiny_policy(seed: int | None = None) -> Policy:
    """The built-in policy with parameters of its own; a seed nudges every one of them."""
    loaded = _loaded()
    policy = replace(loaded, model=copy.deepcopy(loaded.model))
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


def logprobs_by_hand(policy: Policy, t: Trajectory, temperature: float, *, entropies: bool = False) -> Any:
    """One unpadded forward of one trajectory, and log-probs straight from its raw logits; with entropies if asked."""
    tokens = torch.tensor([[*t.prompt_token_ids, *t.completion_token_ids]])
    logits_SV = policy.model(input_ids=tokens).logits[0].double() / temperature
    assert policy.suppressed_token_ids == (policy.pad_token_id,)
    allowed = [v for v in range(logits_SV.shape[1]) if v != policy.pad_token_id]
    first = len(t.prompt_token_ids)
    logprobs, entropy = [], []
    for i, token in enumerate(t.completion_token_ids):
        distribution = torch.distributions.Categorical(logits=logits_SV[first + i - 1, allowed])
        logprobs.append(distribution.log_prob(torch.tensor(allowed.index(token))))
        entropy.append(distribution.entropy())
    return (torch.stack(logprobs), torch.stack(entropy)) if entropies else torch.stack(logprobs)


def parameters(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()]).clone()


def gradient(policy: Policy) -> torch.Tensor:
    """Of a backward pass by hand, or the one that the last step of `sgd` took."""
    taken: torch.Tensor | None = getattr(policy.model, "taken_gradient", None)
    return _flat_gradient(policy) if taken is None else taken


def _flat_gradient(policy: Policy) -> torch.Tensor:
    return torch.cat([p.grad.flatten().double() for p in policy.model.parameters() if p.grad is not None])


def sgd(policy: Policy, lr: float = 0.5) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=lr)
    optimizer.register_step_pre_hook(
        lambda *_: setattr(policy.model, "taken_gradient", _flat_gradient(policy))  # type: ignore[func-returns-value]
    )
    return optimizer


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def in_double(policy: Policy) -> Policy:
    """Padding changes the last bits of a float32 forward pass."""
    policy.model.double()
    return replace(policy, dtype=torch.float64)


def count_sequences(policy: Policy) -> list[int]:
    """Sequences of each forward pass to come."""
    seen: list[int] = []
    policy.model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    return seen


def torch_training(policy: Policy, learning_rate: float = 1e-3) -> TorchTraining:
    """The torch back end on one process, with AdamW."""
    return TorchTraining(
        Trained(policy), make_optimizer(policy, Train(learning_rate=learning_rate)), TEMPERATURE, Ranks()
    )


def reference_of(policy: Policy) -> Reference:
    def logprobs(batch: TokenBatch) -> torch.Tensor:
        with torch.no_grad():
            return token_logprobs(policy, batch, temperature=TEMPERATURE).logprobs_BT

    return logprobs


def update_policy(
    policy: Policy,
    reference: Policy | None,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[RolloutGroup],
    config: Train,
) -> UpdateMetrics:
    """One update on one torch process, at the learning rate that the optimizer has."""
    return update_backend(
        TorchTraining(Trained(policy), optimizer, TEMPERATURE, Ranks()),
        None if reference is None else reference_of(reference),
        groups,
        config,
        learning_rate=optimizer.param_groups[0]["lr"],
        max_tokens=MAX_TOKENS,
    )


def random_groups(behaviour: Policy, rewards: Sequence[Sequence[float | None]], seed: int = 0) -> list[RolloutGroup]:
    """Groups of random completions with their log-probs under `behaviour`."""
    rng = random.Random(seed)
    groups = []
    for g, group_rewards in enumerate(rewards):
        prompt = [1, *rng.choices(range(4, 12), k=rng.randint(2, 6))]
        members = []
        for i, reward in enumerate(group_rewards):
            tokens = [*rng.choices(range(4, 12), k=rng.randint(1, 7)), 2]
            t = trajectory(f"p{g}", i, reward=reward, tokens=tokens, prompt_tokens=prompt)
            with torch.no_grad():
                logprobs = logprobs_by_hand(behaviour, t, TEMPERATURE)
            members.append(replace(t, behaviour_logprobs=tuple(logprobs.tolist())))
        groups.append(RolloutGroup(f"p{g}", tuple(members)))
    return groups


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
    validation: Sequence[Prompt] = (),
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
    write_job(directory, job, prompts, list(history), validation)
    return directory
