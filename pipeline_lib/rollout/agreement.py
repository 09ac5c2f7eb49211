"""Whether an engine with its own copy of the weights samples from the policy that is trained."""

from __future__ import annotations

import random

import torch

from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.records import Trajectory
from pipeline_lib.rollout.engine import Engine, SamplingParams

LIMIT = {torch.float32: 1e-3, torch.bfloat16: 0.15}
"""Nats a token: float32 engines were seen 3.5e-5 apart, bfloat16 ones 0.06 on average."""
PROMPTS, PROMPT_TOKENS, SAMPLES, TOKENS = 4, 8, 2, 16


class EngineMismatch(ValueError):
    """What an engine says of its samples is not what the policy says of them."""


@torch.no_grad()
def check_agreement(engine: Engine, policy: Policy, *, temperature: float) -> float:
    """Mean distance in nats of the engine's log-probs from the policy's, over samples of the engine's own.

    Raises EngineMismatch where it is beyond LIMIT: other weights, a head left behind, log-probs before temperature.
    """
    draw = random.Random(0)
    vocabulary = range(policy.model.config.get_text_config().vocab_size)
    forbidden = {*policy.eos_token_ids, *policy.suppressed_token_ids}
    allowed = [token for token in vocabulary if token not in forbidden]
    prompts = [tuple(draw.choices(allowed, k=PROMPT_TOKENS)) for _ in range(PROMPTS)]
    params = SamplingParams(n=SAMPLES, temperature=temperature, max_tokens=TOKENS, batch_size=PROMPTS * SAMPLES)
    trajectories = [
        Trajectory("", k, prompt, c.token_ids, c.logprobs, c.finish_reason, c.text, None, False, "error")
        for prompt, group in zip(prompts, engine.generate(prompts, params, seed=0), strict=True)
        for k, c in enumerate(group)
    ]
    batch = collate(trajectories, policy.pad_token_id, policy.device)
    own = token_logprobs(policy, batch, temperature=temperature).logprobs_BT
    mask = batch.completion_mask_BT
    gap = float((own - batch.behaviour_logprobs_BT)[mask].abs().mean())
    limit = LIMIT.get(policy.dtype, LIMIT[torch.bfloat16])
    if not gap <= limit:
        raise EngineMismatch(
            f"the engine's log-probs are {gap:.3g} nats a token from the policy's own, more than {limit:g}: it samples "
            "from other weights, or tells log-probs of another distribution; rollouts of it are refused. A server must "
            "serve the policy of this run, in its dtype, with --logprobs-mode processed_logprobs"
        )
    return gap
