"""Small random policies and the trajectories that an engine makes of them."""

import torch

from pipeline_lib.policy import Policy
from pipeline_lib.policy.make_builtin import make_model, make_tokenizer
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rollout import Completion

PROMPTS = [[1, 7, 14, 9, 18, 19, 20], [1, 4, 20], [1, 13, 15, 5, 16, 6, 14, 4, 18, 19, 20], [1, 8, 17, 8, 20]]


def tiny_policy(*, eos: tuple[int, ...] = (2,), pad: int = 0, seed: int = 0) -> Policy:
    """Random weights, scaled so that the distribution is far from uniform."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = make_tokenizer()
        model = make_model(tokenizer)
    with torch.no_grad():
        model.lm_head.weight.mul_(5.0)
        model.model.embed_tokens.weight.mul_(20.0)
    model.train(False)
    return Policy(model, tokenizer, eos, pad, torch.float32)


def as_group(prompt: list[int], completions: list[Completion]) -> RolloutGroup:
    return RolloutGroup(
        "0" * 16,
        tuple(
            Trajectory(
                "0" * 16,
                index,
                tuple(prompt),
                c.token_ids,
                c.logprobs,
                c.finish_reason,
                c.text,
                1.0,
                True,
                "ok",
            )
            for index, c in enumerate(completions)
        ),
    )
