"""Makes the built-in policy: a small Llama over characters, warm-started on deliberately faulty chains.

    python -m pipeline_lib.policy.make_builtin [--out DIR] [--iterations N]

Running it again gives the same bytes. The faults are what leaves reinforcement learning something to do: of each
operation's table some entries are mostly remembered wrong, so that practising one operation does little for
another, and long chains, which need many entries, are hard.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import get_args

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pipeline_lib.atomic import new_directory
from pipeline_lib.config import ChainKind
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import MARKER, OPERATIONS, SYMBOLS

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = "0123456789+-*^=?>;|"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)

FAULTY_SHARE = {"+": 0.10, "-": 0.35, "*": 0.30, "^": 0.30}
"""Share of an operation's 10 × 10 table that is mostly remembered wrong."""
FAULTY_ENTRY_ERROR = 0.65
OTHER_ENTRY_ERROR = 0.04

ITERATIONS = 1500
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARMUP = 100
LONGEST_CHAIN = 6


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Random weights, drawn from torch's global generator."""
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        **special,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**special)
    return model


class Tables:
    """What the policy is taught of each operation: a few entries mostly wrong, always by the same digit."""

    def __init__(self, random: Random) -> None:
        self._mistaken: dict[tuple[str, int, int], int] = {}
        entries = [(value, digit) for value in range(10) for digit in range(10)]
        for symbol, operation in OPERATIONS.items():
            for value, digit in random.sample(entries, round(FAULTY_SHARE[symbol] * len(entries))):
                wrong = (operation(value, digit) + random.randint(1, 9)) % 10
                self._mistaken[symbol, value, digit] = wrong

    def result(self, symbol: str, value: int, digit: int, random: Random) -> int:
        right = OPERATIONS[symbol](value, digit) % 10
        mistaken = self._mistaken.get((symbol, value, digit))
        if random.random() < (OTHER_ENTRY_ERROR if mistaken is None else FAULTY_ENTRY_ERROR):
            return (right + random.randint(1, 9)) % 10 if mistaken is None else mistaken
        return right


def faulty_example(tables: Tables, random: Random) -> tuple[str, str]:
    """A question and its worked solution. A wrong step is gone on with."""
    kind = random.choice(get_args(ChainKind))
    value = random.randrange(10)
    question, steps = str(value), []
    for _ in range(random.randint(1, LONGEST_CHAIN)):
        symbol = random.choice("+-") if kind == "mixed" else SYMBOLS[kind]
        digit = random.randrange(10)
        result = tables.result(symbol, value, digit, random)
        question += f"{symbol}{digit}"
        steps.append(f"{value}{symbol}{digit}{result}")
        value = result
    return f"{question}=?", f"{';'.join(steps)}{MARKER}{value}"


def training_batch(
    tokenizer: PreTrainedTokenizerFast, tables: Tables, random: Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded token ids and labels; only the solution and its eos are learnt."""
    examples = [faulty_example(tables, random) for _ in range(BATCH_SIZE)]
    rows = [tokenizer.encode(f"<bos>{question}>{solution}<eos>") for question, solution in examples]
    S = max(map(len, rows))
    input_ids_BS = torch.tensor([row + [tokenizer.pad_token_id] * (S - len(row)) for row in rows])
    labels_BS = torch.full_like(input_ids_BS, -100)
    for index, (row, (question, _)) in enumerate(zip(rows, examples, strict=True)):
        solution_span = slice(len(question) + 2, len(row))  # after bos and >
        labels_BS[index, solution_span] = input_ids_BS[index, solution_span]
    return input_ids_BS, labels_BS


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, iterations: int, random: Random) -> None:
    """AdamW with a linear warm-up and a cosine down to a tenth of the learning rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    tables = Tables(random)
    model.train()
    for step in range(iterations):
        cosine = 0.55 + 0.45 * math.cos(math.pi * step / iterations)
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min((step + 1) / WARMUP, cosine)
        input_ids_BS, labels_BS = training_batch(tokenizer, tables, random)
        loss = model(input_ids=input_ids_BS, labels=labels_BS, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"iteration {step + 1} of {iterations}: loss {loss.item():.4f}", flush=True)


def make_builtin(out: Path, *, iterations: int = ITERATIONS, seed: int = 0) -> None:
    torch.set_num_threads(1)  # more would sum in another order
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    train(model, tokenizer, iterations, Random(seed))
    with new_directory(out) as directory:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILTIN_DIRECTORY)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parsed = parser.parse_args(arguments)
    make_builtin(parsed.out, iterations=parsed.iterations)


if __name__ == "__main__":
    main()
