"""Log-probs of completion tokens under the distribution that they are sampled from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pipeline_lib.policy.batch import TokenBatch
from pipeline_lib.policy.policy import Policy


@dataclass(frozen=True)
class TokenLogprobs:
    logprobs_BT: torch.Tensor  # nats, 0 where masked
    entropy_BT: torch.Tensor | None  # nats, 0 where masked; carries no gradient


def sampling_logits(policy: Policy, logits_V: torch.Tensor, temperature: float) -> torch.Tensor:
    """[..., V] float32 logits of the distribution sampled from: at `temperature`, pad suppressed."""
    logits_V = logits_V.float() / temperature
    for token_id in policy.suppressed_token_ids:
        suppressed = torch.zeros(logits_V.shape[-1], dtype=torch.bool, device=logits_V.device)
        suppressed[token_id] = True
        logits_V = logits_V.masked_fill(suppressed, float("-inf"))
    return logits_V


def token_logprobs(policy: Policy, batch: TokenBatch, *, temperature: float, entropy: bool = False) -> TokenLogprobs:
    """log π(x_t | s_t) at `temperature`, pad suppressed as the engine suppresses it; differentiable, float32."""
    T = batch.completion_ids_BT.shape[1]
    with policy.autocast():
        output = policy.model(
            input_ids=batch.input_ids_BS,
            attention_mask=batch.attention_mask_BS,
            position_ids=batch.position_ids_BS,
            logits_to_keep=T + 1,
            use_cache=False,
        )
    logits_BTV = sampling_logits(policy, output.logits[:, :-1], temperature)
    normaliser_BT = torch.logsumexp(logits_BTV, dim=-1)
    chosen_BT = logits_BTV.gather(-1, batch.completion_ids_BT[..., None]).squeeze(-1)
    logprobs_BT = (chosen_BT - normaliser_BT).masked_fill(~batch.completion_mask_BT, 0.0)
    entropy_BT = None
    if entropy:
        with torch.no_grad():
            probs_BTV = torch.softmax(logits_BTV, dim=-1)
            surprise_BTV = torch.where(probs_BTV > 0, -probs_BTV.log(), 0.0)
            entropy_BT = (probs_BTV * surprise_BTV).sum(-1).masked_fill(~batch.completion_mask_BT, 0.0)
    return TokenLogprobs(logprobs_BT, entropy_BT)
