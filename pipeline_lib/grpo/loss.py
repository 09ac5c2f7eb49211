"""The clipped losses of the GRPO family. Suffixes: B trajectories, T tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline_lib.config import Loss

MAX_LOG_RATIO = 20.0
"""Nats. Beyond it a ratio is clipped anyway; exp would overflow at 88."""


@dataclass(frozen=True)
class BatchSize:
    """What a loss is averaged over: the whole batch, whichever micro-batch and process a token is in."""

    n_sequences: int
    n_tokens: int
    max_tokens: int  # greatest length of a completion


@dataclass(frozen=True)
class LossTerms:
    """`loss` is this micro-batch's share of the batch's; the rest is per token and without gradient."""

    loss: torch.Tensor
    clipped_low_BT: torch.Tensor  # bool
    clipped_high_BT: torch.Tensor  # bool
    k3_BT: torch.Tensor | None
    importance_BT: torch.Tensor | None  # the truncated weights


def token_weights(mask_BT: torch.Tensor, config: Loss, size: BatchSize) -> torch.Tensor:
    """Weight of each token in the loss; the weights of a batch's micro-batches add up, however they are cut.

    dapo: 1/n_tokens. grpo, gspo: 1/(n_sequences · |τ|). dr_grpo: 1/(n_sequences · max_tokens).
    """
    mask_BT = mask_BT.float()
    match config.type:
        case "dapo":
            return mask_BT / size.n_tokens
        case "dr_grpo":
            return mask_BT / (size.n_sequences * size.max_tokens)
        case "grpo" | "gspo":
            return mask_BT / mask_BT.sum(-1, keepdim=True).clamp(min=1) / size.n_sequences


def policy_loss(
    *,
    logprobs_BT: torch.Tensor,
    entropy_BT: torch.Tensor,
    behaviour_logprobs_BT: torch.Tensor,
    reference_logprobs_BT: torch.Tensor | None,
    advantages_B: torch.Tensor,
    mask_BT: torch.Tensor,
    weights_BT: torch.Tensor,
    config: Loss,
) -> LossTerms:
    """- Σ w · c · min(ρA, clip(ρ, 1-ε_low, 1+ε_high)A) + kl_coefficient · Σ w · k3 - entropy_coefficient · Σ w · H.

    ρ = π/β per token (gspo: its geometric mean over the completion, arXiv 2507.18071) and c = 1; with
    `max_importance_ratio` C, ρ = π/π (value 1, gradient ∇log π) and c = min(π/β, C), truncated importance sampling.
    k3 = exp(r) - r - 1 with r = log π_ref - log π (Schulman 2020) is an unbiased estimate of KL(π ‖ π_ref).
    """
    log_ratio_BT = logprobs_BT - behaviour_logprobs_BT
    if config.type == "gspo":
        lengths_B1 = mask_BT.sum(-1, keepdim=True).clamp(min=1)
        log_ratio_BT = ((log_ratio_BT * mask_BT).sum(-1, keepdim=True) / lengths_B1).expand_as(log_ratio_BT)
    importance_BT = None
    if config.max_importance_ratio is not None:
        importance_BT = _exp(log_ratio_BT.detach()).clamp(max=config.max_importance_ratio)
        log_ratio_BT = log_ratio_BT - log_ratio_BT.detach()
    ratio_BT, advantages_BT = _exp(log_ratio_BT), advantages_B[:, None]
    clipped_BT = ratio_BT.clamp(1 - config.clip_low, 1 + config.clip_high)
    objective_BT = torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)
    if importance_BT is not None:
        objective_BT = objective_BT * importance_BT
    loss = -(objective_BT * weights_BT).sum()
    k3_BT = None
    if reference_logprobs_BT is not None:
        difference_BT = (reference_logprobs_BT - logprobs_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        k3_BT = (torch.exp(difference_BT) - difference_BT - 1) * mask_BT
        if config.kl_coefficient:
            loss = loss + config.kl_coefficient * (k3_BT * weights_BT).sum()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * (entropy_BT * weights_BT).sum()
    return LossTerms(
        loss=loss,
        clipped_low_BT=(ratio_BT < 1 - config.clip_low) & (advantages_BT < 0) & mask_BT,
        clipped_high_BT=(ratio_BT > 1 + config.clip_high) & (advantages_BT > 0) & mask_BT,
        k3_BT=None if k3_BT is None else k3_BT.detach(),
        importance_BT=importance_BT,
    )


def _exp(log_ratio_BT: torch.Tensor) -> torch.Tensor:
    return torch.exp(log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
