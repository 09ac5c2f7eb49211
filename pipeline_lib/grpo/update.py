"""One policy update from a batch of rollout groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pipeline_lib.advantages import graded_advantages
from pipeline_lib.config import Train
from pipeline_lib.grpo.loss import grpo_loss, token_weights
from pipeline_lib.policy import Policy, collate, micro_batches, token_logprobs
from pipeline_lib.records import RolloutGroup


@dataclass(frozen=True)
class UpdateMetrics:
    """Means over the tokens that took part; None where nothing did. Log-prob differences in nats."""

    loss: float
    grad_norm: float
    num_tokens: int
    kl: float | None
    entropy: float | None
    clip_ratio_low_mean: float | None
    clip_ratio_high_mean: float | None
    sampling_logp_difference_mean: float | None
    sampling_logp_difference_max: float | None


class NonFiniteUpdate(RuntimeError):
    """The loss or the gradient is not finite; the step was not applied."""


def update_policy(
    policy: Policy,
    reference: Policy | None,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[RolloutGroup],
    config: Train,
    temperature: float,
) -> UpdateMetrics:
    """Accumulate the gradient over micro-batches, clip it, step the optimizer.

    The denominators count every graded trajectory of the batch. Groups without signal have advantage 0, so
    they are run through the policy only where a KL penalty gives them a gradient. Raises NonFiniteUpdate
    with the parameters untouched.
    """
    weighted = [(t, a) for group in groups for t, a in graded_advantages(group)]
    n_sequences, n_tokens = len(weighted), sum(len(t.completion_token_ids) for t, _ in weighted)
    taking_part = weighted if reference is not None else [(t, a) for t, a in weighted if a != 0.0]
    optimizer.zero_grad(set_to_none=True)
    totals = dict.fromkeys(("loss", "kl", "entropy", "low", "high", "difference"), 0.0)
    n_taking_part, largest_difference = 0, 0.0
    lengths = [len(t.prompt_token_ids) + len(t.completion_token_ids) for t, _ in taking_part]
    for indices in micro_batches(lengths, config.tokens_per_micro_batch):
        batch = collate([taking_part[i][0] for i in indices], policy.pad_token_id, policy.device)
        advantages_B = torch.tensor([taking_part[i][1] for i in indices], device=policy.device)
        mask_BT = batch.completion_mask_BT
        current = token_logprobs(policy, batch, temperature=temperature, entropy=True)
        reference_logprobs_BT = None
        if reference is not None:
            with torch.no_grad():
                reference_logprobs_BT = token_logprobs(reference, batch, temperature=temperature).logprobs_BT
        terms = grpo_loss(
            logprobs_BT=current.logprobs_BT,
            behaviour_logprobs_BT=batch.behaviour_logprobs_BT,
            reference_logprobs_BT=reference_logprobs_BT,
            advantages_B=advantages_B,
            mask_BT=mask_BT,
            weights_BT=token_weights(mask_BT, config.loss, n_sequences=n_sequences, n_tokens=n_tokens),
            config=config.loss,
        )
        terms.loss.backward()
        difference_BT = (current.logprobs_BT.detach() - batch.behaviour_logprobs_BT).abs()
        assert current.entropy_BT is not None
        totals["loss"] += float(terms.loss.detach())
        totals["kl"] += terms.kl_sum
        totals["entropy"] += float(current.entropy_BT.sum())
        totals["low"] += terms.clipped_low
        totals["high"] += terms.clipped_high
        totals["difference"] += float(difference_BT.sum())
        largest_difference = max(largest_difference, float(difference_BT.max()))
        n_taking_part += int(mask_BT.sum())
    grad_norm = 0.0
    if taking_part:
        norm = torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.max_grad_norm)
        grad_norm = float(norm)
        if not (torch.isfinite(norm) and torch.isfinite(torch.tensor(totals["loss"]))):
            raise NonFiniteUpdate(f"loss {totals['loss']}, gradient norm {grad_norm}: the step was not applied")
        optimizer.step()

    def per_token(total: float) -> float | None:
        return total / n_taking_part if n_taking_part else None

    return UpdateMetrics(
        loss=totals["loss"],
        grad_norm=grad_norm,
        num_tokens=n_tokens,
        kl=per_token(totals["kl"]) if reference is not None else None,
        entropy=per_token(totals["entropy"]),
        clip_ratio_low_mean=per_token(totals["low"]),
        clip_ratio_high_mean=per_token(totals["high"]),
        sampling_logp_difference_mean=per_token(totals["difference"]),
        sampling_logp_difference_max=largest_difference if n_taking_part else None,
    )
