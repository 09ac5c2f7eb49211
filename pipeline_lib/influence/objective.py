"""The off-policy surrogate of rollout groups, and its gradient over every scored parameter.

Suffixes: R rows, C columns whose logits are kept, M completion tokens of a pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from pipeline_lib.advantages import graded_advantages
from pipeline_lib.influence.pack import Pack, Row, Weighted, attention_share, make_pack, packs, rows_of
from pipeline_lib.policy import Policy, sampling_logits
from pipeline_lib.records import RolloutGroup

Gradient = list[torch.Tensor]
"""float32, one tensor for each scored parameter in the model's order; a tied parameter stands once."""

Observe = Callable[[Pack, torch.Tensor], None]
"""Told of each pack and of log π/β of its completion tokens [M]."""


def scored_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Those that training moves: the adapters where the policy carries LoRA adapters, else all."""
    adapters = [parameter for name, parameter in model.named_parameters() if "lora_" in name]
    return adapters or list(model.parameters())


def weighted_trajectories(group: RolloutGroup) -> list[Weighted]:
    """A_k / (K |τ_k|) for each of the K graded trajectories; those that add nothing are left out."""
    pairs = graded_advantages(group)
    return [
        (trajectory, advantage / (len(pairs) * len(trajectory.completion_token_ids)))
        for trajectory, advantage in pairs
        if advantage != 0.0 and trajectory.completion_token_ids
    ]


def surrogate(policy: Policy, pack: Pack, *, temperature: float, observe: Observe | None = None) -> torch.Tensor:
    """J = (1/K) Σ_k (A_k/|τ_k|) Σ_t ρ_kt, ρ = π_θ/β for each token, unclipped. CROPI, arXiv 2510.26491.

    Over the trajectories of several groups it is the sum of their J.
    """
    log_ratio_M = token_log_ratios(policy, pack, temperature=temperature)
    if observe is not None:
        observe(pack, log_ratio_M.detach())
    return (pack.weight_M * torch.exp(log_ratio_M)).sum()


def token_log_ratios(policy: Policy, pack: Pack, *, temperature: float) -> torch.Tensor:
    """log π_θ/β of each completion token [M], π_θ as it is sampled from: at `temperature`, pad suppressed."""
    with policy.autocast():
        output = policy.model(
            input_ids=pack.input_ids_RS,
            attention_mask=pack.attention_mask,
            position_ids=pack.position_ids_RS,
            logits_to_keep=pack.n_kept,
            use_cache=False,
        )
    logits_RCV = sampling_logits(policy, output.logits, temperature)
    normaliser_RC = torch.logsumexp(logits_RCV, dim=-1)
    logprob_M = logits_RCV[pack.row_M, pack.source_M, pack.token_M] - normaliser_RC[pack.row_M, pack.source_M]
    return logprob_M - pack.behaviour_logprob_M


def gradient(
    policy: Policy,
    rows: Sequence[Row],
    parameters: Sequence[nn.Parameter],
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    observe: Observe | None = None,
) -> Gradient:
    """∇J of all rows together by plain autograd, micro-batch by micro-batch."""
    total = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters]
    with requiring_grad(policy, parameters):
        for indices in packs([[row] for row in rows], tokens_per_micro_batch):
            pack = make_pack([[rows[i] for i in indices]], policy)
            surrogate(policy, pack, temperature=temperature, observe=observe).backward()
            for sum_, parameter in zip(total, parameters, strict=True):
                if parameter.grad is not None:
                    sum_.add_(parameter.grad)
                parameter.grad = None
    return total


def group_gradient(
    policy: Policy,
    group: RolloutGroup,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    observe: Observe | None = None,
) -> Gradient:
    """The gradient g_i of one prompt; all zeros, without a forward pass, where the group has no signal."""
    return gradient(
        policy,
        rows_of(weighted_trajectories(group), attention_share(policy), tokens_per_micro_batch),
        scored_parameters(policy.model),
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        observe=observe,
    )


@contextmanager
def requiring_grad(policy: Policy, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """These parameters alone require grad for the length of a block; then each is put back as it was."""
    before = [(parameter, parameter.requires_grad) for parameter in policy.model.parameters()]
    policy.model.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, required in before:
            parameter.requires_grad_(required)
