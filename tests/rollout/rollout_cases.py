"""Small random policies and the trajectories that an engine makes of them."""

import torch
from transformers import PreTrainedModel

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


def policy_of(model_class: type[PreTrainedModel], *, dtype: torch.dtype = torch.float32, **config: object) -> Policy:
    """A random policy of that class with the tokenizer of `tiny_policy`, two layers and four heads of width 8."""
    tokenizer = make_tokenizer()
    small = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**small | config))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return Policy(model.train(False), tokenizer, (2,), 0, dtype)


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
