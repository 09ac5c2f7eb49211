"""The clipped GRPO loss, its aggregations and the k3 penalty. Suffixes: B trajectories, T tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline_lib.config import Loss


@dataclass(frozen=True)
class LossTerms:
    """`loss` is this micro-batch's share of the batch's mean; the sums are over unmasked tokens."""

    loss: torch.Tensor
    clipped_low: float
    clipped_high: float
    kl_sum: float


def token_weights(mask_BT: torch.Tensor, config: Loss, *, n_sequences: int, n_tokens: int) -> torch.Tensor:
    """Weight of each token in the mean over the whole batch of `n_sequences` with `n_tokens`.

    token_mean: 1/n_tokens, as in DAPO (arXiv 2503.14476); sequence_mean: 1/(n_sequences · |τ|), as in GRPO
    (arXiv 2402.03300). Micro-batches of one batch therefore add up, however they are cut.
    """
    mask_BT = mask_BT.float()
    if config.aggregation == "token_mean":
        return mask_BT / n_tokens
    return mask_BT / mask_BT.sum(-1, keepdim=True).clamp(min=1) / n_sequences


def grpo_loss(
    *,
    logprobs_BT: torch.Tensor,
    behaviour_logprobs_BT: torch.Tensor,
    reference_logprobs_BT: torch.Tensor | None,
    advantages_B: torch.Tensor,
    mask_BT: torch.Tensor,
    weights_BT: torch.Tensor,
    config: Loss,
) -> LossTerms:
    """- Σ w · min(ρA, clip(ρ, 1-ε_low, 1+ε_high)A) + coefficient · Σ w · k3, with ρ = π/β per token.

    k3 = exp(r) - r - 1 with r = log π_ref - log π (Schulman 2020) is an unbiased estimate of KL(π ‖ π_ref).
    """
    advantages_BT = advantages_B[:, None]
    ratio_BT = torch.exp(logprobs_BT - behaviour_logprobs_BT)
    clipped_BT = ratio_BT.clamp(1 - config.clip_low, 1 + config.clip_high)
    objective_BT = torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)
    loss = -(objective_BT * weights_BT).sum()
    kl_sum = 0.0
    if reference_logprobs_BT is not None:
        difference_BT = reference_logprobs_BT - logprobs_BT
        k3_BT = (torch.exp(difference_BT) - difference_BT - 1) * mask_BT
        loss = loss + config.kl_coefficient * (k3_BT * weights_BT).sum()
        kl_sum = float(k3_BT.detach().sum())
    low_BT = (ratio_BT < 1 - config.clip_low) & (advantages_BT < 0) & mask_BT
    high_BT = (ratio_BT > 1 + config.clip_high) & (advantages_BT > 0) & mask_BT
    return LossTerms(loss, float(low_BT.sum()), float(high_BT.sum()), kl_sum)
