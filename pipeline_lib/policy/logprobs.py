"""Log-probs of completion tokens under the distribution that they are sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.utils.checkpoint import checkpoint

from pipeline_lib.policy.batch import TokenBatch
from pipeline_lib.policy.policy import Policy

LOGITS_AT_ONCE = 2**25
"""Float32 logits of one chunk of tokens: 128 MiB, of which a few copies live at a time."""


EntropyKind = Literal["none", "value", "gradient"]


@dataclass(frozen=True)
class TokenLogprobs:
    logprobs_BT: torch.Tensor  # nats, 0 where masked
    entropy_BT: torch.Tensor | None  # nats, 0 where masked


def sampling_logits(policy: Policy, logits_V: torch.Tensor, temperature: float) -> torch.Tensor:
    """[..., V] float32 logits of the distribution sampled from: at `temperature`, pad suppressed."""
    logits_V = logits_V.float() / temperature
    for token_id in policy.suppressed_token_ids:
        suppressed = torch.zeros(logits_V.shape[-1], dtype=torch.bool, device=logits_V.device)
        suppressed[token_id] = True
        logits_V = logits_V.masked_fill(suppressed, float("-inf"))
    return logits_V


def token_logprobs(
    policy: Policy, batch: TokenBatch, *, temperature: float, entropy: EntropyKind = "none"
) -> TokenLogprobs:
    """log π(x_t | s_t) at `temperature`, pad suppressed as the engine suppresses it; differentiable, float32.

    `entropy` is left out, given as a number, or differentiable as well. Where the policy's head is plain, the logits
    of unmasked tokens are formed chunk by chunk and formed again in the backward pass, so that memory does not grow
    with tokens × vocabulary.
    """
    mask_BT = batch.completion_mask_BT
    chosen_N = batch.completion_ids_BT[mask_BT]
    if policy.plain_head:
        hidden_NH = _decode(policy, batch)[mask_BT]
        at_once = max(1, LOGITS_AT_ONCE // policy.model.config.get_text_config().vocab_size)
        parts = [
            _of_hidden(policy, hidden_NH[i : i + at_once], chosen_N[i : i + at_once], temperature, entropy)
            if len(chosen_N) <= at_once or not hidden_NH.requires_grad
            else checkpoint(
                _of_hidden,
                policy,
                hidden_NH[i : i + at_once],
                chosen_N[i : i + at_once],
                temperature,
                entropy,
                use_reentrant=False,
            )
            for i in range(0, len(chosen_N), at_once)
        ]
        logprobs_N, entropy_N = (torch.cat(column) for column in zip(*parts, strict=True))
    else:
        logits_NV = _logits(policy, batch)[mask_BT]
        logprobs_N, entropy_N = _of_logits(policy, logits_NV, chosen_N, temperature, entropy)
    zeros_BT = torch.zeros(mask_BT.shape, device=logprobs_N.device)
    return TokenLogprobs(
        zeros_BT.masked_scatter(mask_BT, logprobs_N),
        None if entropy == "none" else zeros_BT.masked_scatter(mask_BT, entropy_N),
    )


def _inputs(batch: TokenBatch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.input_ids_BS,
        "attention_mask": batch.attention_mask_BS,
        "position_ids": batch.position_ids_BS,
    }


def _logits(policy: Policy, batch: TokenBatch) -> torch.Tensor:
    """[B, T, V] raw logits that predict the completion's columns."""
    T = batch.completion_ids_BT.shape[1]
    with policy.autocast():
        output = policy.model(**_inputs(batch), logits_to_keep=T + 1, use_cache=False)
    logits_BTV: torch.Tensor = output.logits[:, :-1]
    return logits_BTV


def _decode(policy: Policy, batch: TokenBatch) -> torch.Tensor:
    """[B, T, H] hidden states that predict the completion's columns."""
    T = batch.completion_ids_BT.shape[1]
    with policy.autocast():
        output = policy.model.get_decoder()(**_inputs(batch), use_cache=False)
    hidden_BTH: torch.Tensor = output.last_hidden_state[:, -(T + 1) : -1]
    return hidden_BTH


def _of_hidden(
    policy: Policy, hidden_NH: torch.Tensor, chosen_N: torch.Tensor, temperature: float, entropy: EntropyKind
) -> tuple[torch.Tensor, torch.Tensor]:
    with policy.autocast():
        logits_NV = policy.model.get_output_embeddings()(hidden_NH)
    return _of_logits(policy, logits_NV, chosen_N, temperature, entropy)


def _of_logits(
    policy: Policy, logits_NV: torch.Tensor, chosen_N: torch.Tensor, temperature: float, entropy: EntropyKind
) -> tuple[torch.Tensor, torch.Tensor]:
    logits_NV = sampling_logits(policy, logits_NV, temperature)
    normaliser_N = torch.logsumexp(logits_NV, dim=-1)
    logprobs_N = logits_NV.gather(-1, chosen_N[:, None]).squeeze(-1) - normaliser_N
    if entropy == "none":
        return logprobs_N, torch.zeros_like(logprobs_N)
    with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
        # H = log Z - E[logit]; a suppressed logit of -inf has probability 0.
        expected_N = (torch.softmax(logits_NV, dim=-1) * logits_NV.clamp(min=torch.finfo(torch.float32).min)).sum(-1)
        return logprobs_N, normaliser_N - expected_N
