"""Policies: loading and saving, chat templates, token log-probs, the built-in small policy."""

from pipeline_lib.policy.batch import TokenBatch, collate, micro_batches
from pipeline_lib.policy.logprobs import TokenLogprobs, sampling_logits, token_logprobs
from pipeline_lib.policy.policy import (
    Policy,
    encode_messages,
    load_policy,
    policy_id_of,
    resolve_device,
    save_policy,
)

__all__ = [
    "Policy",
    "TokenBatch",
    "TokenLogprobs",
    "collate",
    "encode_messages",
    "load_policy",
    "micro_batches",
    "policy_id_of",
    "resolve_device",
    "sampling_logits",
    "save_policy",
    "token_logprobs",
]
