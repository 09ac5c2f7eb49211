"""Small policies that vLLM's CPU build can run: it knows heads of 32, not the built-in policy's 24."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline_lib.policy import Policy, load_policy, save_policy
from pipeline_lib.policy.make_builtin import make_tokenizer

CPU = torch.device("cpu")


def small_policy(directory: Path, *, tied: bool) -> Policy:
    """Random weights, far from uniform, saved in `directory` and loaded from there to be trained."""
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        for parameter in model.parameters():
            parameter.mul_(4.0)
    save_policy(Policy(model, tokenizer, (2,), 0, torch.float32), directory)
    return load_policy(directory, device=CPU, dtype=torch.float32, trainable=True)


@torch.no_grad()
def nudge(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.model.parameters():
        parameter += 0.1 * parameter.abs().mean() * torch.randn(parameter.shape, generator=generator)
