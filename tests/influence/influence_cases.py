"""Random small policies and rollout groups, and the objective once more, written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pipeline_lib.influence.objective import weighted_trajectories
from pipeline_lib.influence.pack import Pack, make_pack
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup, Trajectory

VOCABULARY = 19
PAD, EOS = 0, 1

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": None,
}

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False)),
    "qwen2-tied": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "qwen3-tied": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)),
}


def policy_of(name: str, seed: int = 0) -> Policy:
    """Every parameter moved off its initial value, so that biases and norms are not at 0 and 1."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    model.train(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.requires_grad_(False)
    return Policy(model, None, (EOS,), PAD, torch.float32)  # type: ignore[arg-type]


def group_of(
    prompt_id: str,
    rng: np.random.Generator,
    rewards: Sequence[float | None],
    max_prompt: int = 5,
    max_completion: int = 7,
) -> RolloutGroup:
    """Random tokens and off-policy log-probs, lengths unequal within the group."""
    prompt = tuple(rng.integers(2, VOCABULARY, rng.integers(1, max_prompt + 1)).tolist())
    trajectories = []
    for index, reward in enumerate(rewards):
        completion = tuple(rng.integers(1, VOCABULARY, rng.integers(1, max_completion + 1)).tolist())
        trajectories.append(
            Trajectory(
                prompt_id=prompt_id,
                sample_index=index,
                prompt_token_ids=prompt,
                completion_token_ids=completion,
                behaviour_logprobs=tuple(rng.normal(-3.0, 0.5, len(completion)).tolist()),
                finish_reason="stop",
                text="",
                reward=reward,
                correct=reward == 1.0,
                verifier_status="timeout" if reward is None else "ok",
            )
        )
    return RolloutGroup(prompt_id, tuple(trajectories))


def pack_of(policy: Policy, *groups: RolloutGroup) -> Pack:
    """Each trajectory in a row of its own."""
    return make_pack([[[w] for w in weighted_trajectories(group)] for group in groups], policy)


def pool_of(seed: int, n: int = 6) -> list[RolloutGroup]:
    """Groups with signal, ungraded completions and zero-variance groups among them."""
    rng = np.random.default_rng(seed)
    kinds: list[list[float | None]] = [
        [1.0, 0.0, 0.0, 1.0],
        [1.0, 1.0, 1.0],
        [0.0, None, 1.0, 0.5],
        [0.0, 0.0],
        [1.0, 0.0],
    ]
    return [group_of(f"{seed:02d}-{i:02d}", rng, kinds[i % len(kinds)]) for i in range(n)]


def validation_of(seed: int) -> Mapping[str, list[RolloutGroup]]:
    return {"plus": pool_of(seed + 50, 3), "minus": pool_of(seed + 70, 5)}


def objective_by_hand(model: PreTrainedModel, group: RolloutGroup, temperature: float) -> torch.Tensor:
    """J from the raw logits of one unpadded sequence after the other, in the model's own precision."""
    graded = [t for t in group.trajectories if t.reward is not None]
    rewards = np.array([t.reward for t in graded], dtype=float)
    dtype = next(model.parameters()).dtype
    J = torch.zeros((), dtype=dtype)
    if len(graded) < 2 or np.ptp(rewards) == 0:
        return J
    for t, reward in zip(graded, rewards, strict=True):
        advantage = (reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        ids = torch.tensor([[*t.prompt_token_ids, *t.completion_token_ids]])
        logits = model(input_ids=ids, use_cache=False).logits[0] / temperature
        total = torch.zeros((), dtype=dtype)
        for step, token in enumerate(t.completion_token_ids):
            row = logits[len(t.prompt_token_ids) - 1 + step]
            possible = torch.cat([row[:PAD], row[PAD + 1 :]])
            logprob = row[token] - torch.log(torch.exp(possible).sum())
            total = total + torch.exp(logprob - t.behaviour_logprobs[step])
        J = J + advantage / len(t.completion_token_ids) * total
    return J / len(graded)


class DoubleRMSNorm(torch.nn.Module):
    """RMSNorm in the precision of its input, where transformers goes through float32."""

    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)


def double(policy: Policy) -> PreTrainedModel:
    """The same policy in float64 throughout, trainable. (Eager attention would go through float32.)"""
    model = copy.deepcopy(policy.model).double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.__class__ = DoubleRMSNorm
    return model.requires_grad_(True)


def gradient_by_hand(policy: Policy, group: RolloutGroup, temperature: float) -> np.ndarray:
    """The flat float64 gradient of `objective_by_hand`."""
    model = double(policy)
    J = objective_by_hand(model, group, temperature)
    parameters = list(model.parameters())
    if not J.requires_grad:
        return np.zeros(sum(p.numel() for p in parameters))
    return flat(torch.autograd.grad(J, parameters))


def flat(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    return np.concatenate([t.detach().double().reshape(-1).numpy() for t in tensors])


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
