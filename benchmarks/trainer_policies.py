"""Policies that never stop by themselves, so that every completion has the same length, and their prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pipeline_lib.config import ChainSource
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt

BUILTIN = Path(__file__).parents[1] / "pipeline_lib" / "policy" / "builtin"
LLAMA_VOCABULARY = 1024


def write_builtin(directory: Path) -> None:
    _write_never_ending(
        AutoModelForCausalLM.from_pretrained(BUILTIN), AutoTokenizer.from_pretrained(BUILTIN), directory
    )


def write_llama(directory: Path) -> None:
    """A random Llama of 5.3 M parameters, with the built-in policy's tokenizer and words that stand for nothing."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=LLAMA_VOCABULARY,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=2048,
            pad_token_id=0,
            bos_token_id=1,
        )
    )
    tokenizer = AutoTokenizer.from_pretrained(BUILTIN)
    tokenizer.add_tokens([f"<{i}>" for i in range(len(tokenizer), LLAMA_VOCABULARY)])
    _write_never_ending(model, tokenizer, directory)


def write_copy(source: Path) -> Callable[[Path], None]:
    """Of a policy's directory, in float32."""

    def write(directory: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        _write_never_ending(model, AutoTokenizer.from_pretrained(source), directory)

    return write


def _write_never_ending(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """The stop token becomes one that the model has no logit for: what ended a completion is a token like others."""
    vocabulary = model.config.vocab_size
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_special_tokens({"eos_token": "<never>"})
    if tokenizer.eos_token_id != vocabulary:
        raise ValueError(
            f"{directory.name}: the token added has id {tokenizer.eos_token_id} where the model has {vocabulary} "
            "logits, so it could be sampled; take a policy whose tokenizer and logits have the same size"
        )
    model.config.eos_token_id = model.generation_config.eos_token_id = vocabulary
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def chain_prompts(n: int, seed: int = 1) -> list[Prompt]:
    """Chains of two to five operations."""
    source = ChainSource(type="chains", kinds=["plus", "minus", "mixed"], lengths=[2, 3, 4, 5], count=n, seed=seed)
    return [prompt for _, prompt in read_chains(source)]
