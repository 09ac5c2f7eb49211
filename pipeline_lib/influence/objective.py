"""The off-policy surrogate of a rollout group, and its gradient over every parameter.

Suffixes: B trajectories, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pipeline_lib.advantages import graded_advantages
from pipeline_lib.policy import Policy, collate, micro_batches, token_logprobs
from pipeline_lib.records import RolloutGroup, Trajectory

Weighted = tuple[Trajectory, float]
"""A trajectory and the weight of each of its token ratios."""

Gradient = list[torch.Tensor]
"""float32, one tensor for each distinct parameter in the model's order; a tied parameter stands once."""


def weighted_trajectories(group: RolloutGroup) -> list[Weighted]:
    """A_k / (K |τ_k|) for each of the K graded trajectories; those that add nothing are left out."""
    pairs = graded_advantages(group)
    return [
        (trajectory, advantage / (len(pairs) * len(trajectory.completion_token_ids)))
        for trajectory, advantage in pairs
        if advantage != 0.0 and trajectory.completion_token_ids
    ]


def sequence_length(trajectory: Trajectory) -> int:
    return len(trajectory.prompt_token_ids) + len(trajectory.completion_token_ids)


def surrogate(policy: Policy, weighted: Sequence[Weighted], *, temperature: float) -> torch.Tensor:
    """J = (1/K) Σ_k (A_k/|τ_k|) Σ_t ρ_kt, ρ = π_θ/β for each token, unclipped. CROPI, arXiv 2510.26491.

    Over the trajectories of several groups it is the sum of their J.
    """
    batch = collate([trajectory for trajectory, _ in weighted], policy.pad_token_id, policy.device)
    weights_B = torch.tensor([weight for _, weight in weighted], device=policy.device)
    logprobs_BT = token_logprobs(policy, batch, temperature=temperature).logprobs_BT
    ratios_BT = torch.exp(logprobs_BT - batch.behaviour_logprobs_BT)
    return (weights_B[:, None] * ratios_BT.masked_fill(~batch.completion_mask_BT, 0.0)).sum()


def gradient(
    policy: Policy, weighted: Sequence[Weighted], *, temperature: float, tokens_per_micro_batch: int
) -> Gradient:
    """∇J by plain autograd, micro-batch by micro-batch."""
    parameters = list(policy.model.parameters())
    total = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters]
    lengths = [sequence_length(trajectory) for trajectory, _ in weighted]
    with requiring_grad(policy, True):
        for indices in micro_batches(lengths, tokens_per_micro_batch):
            J = surrogate(policy, [weighted[i] for i in indices], temperature=temperature)
            for sum_, part in zip(total, torch.autograd.grad(J, parameters, materialize_grads=True), strict=True):
                sum_.add_(part)
    return total


def group_gradient(policy: Policy, group: RolloutGroup, *, temperature: float, tokens_per_micro_batch: int) -> Gradient:
    """The gradient g_i of one prompt; all zeros, without a forward pass, where the group has no signal."""
    return gradient(
        policy,
        weighted_trajectories(group),
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
    )


@contextmanager
def requiring_grad(policy: Policy, wanted: bool) -> Iterator[None]:
    """Sets `requires_grad` of every parameter for the length of a block, then puts each back as it was."""
    before = [(parameter, parameter.requires_grad) for parameter in policy.model.parameters()]
    policy.model.requires_grad_(wanted)
    try:
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)
