"""One policy update from a batch of rollout groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pipeline_lib.advantages import graded_advantages
from pipeline_lib.config import Train
from pipeline_lib.grpo.backends.base import Backend, NonFiniteGradient
from pipeline_lib.grpo.loss import BatchSize, policy_loss, token_weights
from pipeline_lib.grpo.token_sums import TokenSums, merged
from pipeline_lib.policy import TokenBatch, collate, micro_batches
from pipeline_lib.policy.logprobs import EntropyKind
from pipeline_lib.records import RolloutGroup, Trajectory

Reference = Callable[[TokenBatch], torch.Tensor]
"""Log-probs (B × T) under the policy that the stage began with; without gradient."""


@dataclass(frozen=True)
class UpdateMetrics:
    """Means over the tokens that took part; None where nothing did. Log-probs in nats, times in seconds."""

    loss: float
    grad_norm: float
    num_tokens: int
    kl: float | None
    entropy: float | None
    clip_ratio_low_mean: float | None
    clip_ratio_high_mean: float | None
    clip_ratio_region_mean: float | None
    sampling_logp_difference_mean: float | None
    sampling_logp_difference_max: float | None
    importance_sampling_ratio_min: float | None
    importance_sampling_ratio_mean: float | None
    importance_sampling_ratio_max: float | None
    n_masked: int
    """Graded trajectories that overlong masking left out."""
    logprob_time: float
    """Of the reference's log-probs; the policy's own come with the update."""


class NonFiniteUpdate(RuntimeError):
    """The loss or the gradient is not finite; the step was not applied."""


@dataclass(frozen=True)
class _MicroBatch:
    """`counts` is False for one that only keeps the processes in step."""

    tokens: TokenBatch
    advantages_B: torch.Tensor
    prompt_ids: list[str]
    counts: bool


def update_policy(
    backend: Backend,
    reference: Reference | None,
    groups: Sequence[RolloutGroup],
    config: Train,
    *,
    learning_rate: float,
    max_tokens: int,
) -> UpdateMetrics:
    """Accumulate the gradient over micro-batches and processes, clip it, step the optimizer.

    The denominators count every trajectory of the batch that is graded and not masked. Groups without signal have
    advantage 0, so they are run through the policy only where a KL penalty or an entropy bonus gives them a gradient.
    Raises NonFiniteUpdate with the parameters untouched.
    """
    loss = config.loss
    graded = [(t, a) for group in groups for t, a in graded_advantages(group, divide_by_std=loss.type != "dr_grpo")]
    weighted = [(t, a) for t, a in graded if not (loss.mask_truncated and t.finish_reason == "length")]
    size = BatchSize(len(weighted), sum(len(t.completion_token_ids) for t, _ in weighted), max_tokens)
    everything = reference is not None or loss.entropy_coefficient > 0
    taking_part = weighted if everything else [(t, a) for t, a in weighted if a != 0.0]
    own = _own_micro_batches(backend, taking_part, config.tokens_per_micro_batch)

    started = time.perf_counter()
    reference_logprobs = [None if reference is None else reference(micro.tokens) for micro in own]
    logprob_time = time.perf_counter() - started

    sums = TokenSums()
    entropy: EntropyKind = "gradient" if loss.entropy_coefficient else "value"
    with backend.checkpointing(config.gradient_checkpointing):
        for number, (micro, reference_logprobs_BT) in enumerate(zip(own, reference_logprobs, strict=True), start=1):
            tokens, mask_BT = micro.tokens, micro.tokens.completion_mask_BT
            with backend.micro_batch(last=number == len(own)):
                current = backend.logprobs(tokens, entropy)
                assert current.entropy_BT is not None
                terms = policy_loss(
                    logprobs_BT=current.logprobs_BT,
                    entropy_BT=current.entropy_BT,
                    behaviour_logprobs_BT=tokens.behaviour_logprobs_BT,
                    reference_logprobs_BT=reference_logprobs_BT,
                    advantages_B=micro.advantages_B,
                    mask_BT=mask_BT,
                    weights_BT=token_weights(mask_BT, loss, size) * micro.counts,
                    config=loss,
                )
                finite = bool(torch.isfinite(terms.loss.detach()))
                # A loss that is not finite may have a finite gradient, which must not be applied.
                backend.backward(terms.loss if finite else terms.loss * torch.nan)
            if micro.counts:
                sums.add(terms, current, tokens.behaviour_logprobs_BT, mask_BT)
            if not finite and not sums.non_finite_in:
                sums.non_finite_in = micro.prompt_ids
    total = merged(backend.ranks.gather(sums))
    grad_norm = _apply(backend, total, learning_rate, config.max_grad_norm) if own else 0.0

    low, high = total.mean(total.clipped_low), total.mean(total.clipped_high)
    corrected = bool(total.n) and loss.max_importance_ratio is not None
    return UpdateMetrics(
        loss=total.loss,
        grad_norm=grad_norm,
        num_tokens=size.n_tokens,
        kl=total.mean(total.k3) if reference is not None else None,
        entropy=total.mean(total.entropy),
        clip_ratio_low_mean=low,
        clip_ratio_high_mean=high,
        clip_ratio_region_mean=None if low is None or high is None else low + high,
        sampling_logp_difference_mean=total.mean(total.difference.total),
        sampling_logp_difference_max=total.difference.greatest if total.n else None,
        importance_sampling_ratio_min=total.importance.least if corrected else None,
        importance_sampling_ratio_mean=total.mean(total.importance.total) if corrected else None,
        importance_sampling_ratio_max=total.importance.greatest if corrected else None,
        n_masked=len(graded) - len(weighted),
        logprob_time=logprob_time,
    )


def _own_micro_batches(
    backend: Backend, taking_part: Sequence[tuple[Trajectory, float]], max_tokens: int
) -> list[_MicroBatch]:
    """This process's share: dealt out longest first, and equally many to each, so that none waits for ever."""
    ranks, policy = backend.ranks, backend.trained.policy
    lengths = [len(t.prompt_token_ids) + len(t.completion_token_ids) for t, _ in taking_part]
    cuts = [(cut, True) for cut in micro_batches(lengths, max_tokens)]
    if cuts:
        cuts += [(cuts[-1][0], False)] * (-len(cuts) % ranks.size)
    return [
        _MicroBatch(
            tokens=collate([taking_part[i][0] for i in cut], policy.pad_token_id, policy.device),
            advantages_B=torch.tensor([taking_part[i][1] for i in cut], device=policy.device),
            prompt_ids=sorted({taking_part[i][0].prompt_id for i in cut}),
            counts=counts,
        )
        for cut, counts in cuts[ranks.rank :: ranks.size]
    ]


def _apply(backend: Backend, total: TokenSums, learning_rate: float, max_grad_norm: float) -> float:
    try:
        return backend.apply(learning_rate, max_grad_norm)
    except NonFiniteGradient as error:
        prompts = ", ".join(total.non_finite_in)
        where = f"; the loss is not finite in the micro-batch of prompts {prompts}" if prompts else ""
        raise NonFiniteUpdate(f"loss {total.loss}, {error}{where}: the step was not applied") from None
