"""Makes the built-in policy: a small Llama over characters, warm-started on deliberately noisy chains.

    python -m pipeline_lib.policy.make_builtin [--out DIR] [--iterations N]

Running it again gives the same bytes. The noise is what leaves reinforcement learning something to do.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pipeline_lib.atomic import new_directory

BUILTIN_DIRECTORY = Path(__file__).parent / "builtin"

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = "0123456789+-*^=?>;|"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)

ERROR_RATES = {"+": 0.03, "-": 0.12, "*": 0.10, "^": 0.08}
"""How often a step of that operation shows a wrong result, which the chain then goes on with."""

ITERATIONS = 1500
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARMUP = 100


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
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return model


KINDS = ("+", "-", "+-", "*", "*+", "^", "^+")

def sample_chain(rng):
    kind = rng.choice(KINDS)
    n = rng.randint(1, 6)
    return rng.randrange(10), [(rng.choice(kind), rng.randrange(10)) for _ in range(n)]

def apply(op, a, b):
    return {"+": (a + b) % 10, "-": (a - b) % 10, "*": a * b % 10, "^": max(a, b)}[op]

def noisy_solution(start, steps, rng):
    value, shown = start, []
    for k, (op, digit) in enumerate(steps):
        result = apply(op, value, digit)
        if rng.random() < ERROR_RATES[op] * (1 + 0.8 * k):
            result = (result + rng.randint(1, 9)) % 10
        shown.append(f"{value}{op}{digit}{result}")
        value = result
    return ";".join(shown) + f"|{value}"


def training_batch(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded token ids and labels; only the solution and its eos are learnt."""
    rows, prompt_lengths = [], []
    for _ in range(BATCH_SIZE):
        start, steps = sample_chain(rng)
        prompt = f"{start}" + "".join(f"{o}{d}" for o, d in steps) + "=?"
        prompt_lengths.append(len(prompt) + 2)  # bos and >
        rows.append(tokenizer.encode(f"<bos>{prompt}>{noisy_solution(start, steps, rng)}<eos>"))
    S = max(map(len, rows))
    input_ids_BS = torch.tensor([row + [tokenizer.pad_token_id] * (S - len(row)) for row in rows])
    labels_BS = torch.full_like(input_ids_BS, -100)
    for index, (row, length) in enumerate(zip(rows, prompt_lengths, strict=True)):
        labels_BS[index, length : len(row)] = input_ids_BS[index, length : len(row)]
    return input_ids_BS, labels_BS


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, iterations: int, rng: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)

    def schedule(step: int) -> float:
        return min((step + 1) / WARMUP, 0.1 + 0.45 * (1 + math.cos(math.pi * step / iterations)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    model.train()
    for step in range(iterations):
        input_ids_BS, labels_BS = training_batch(tokenizer, rng)
        loss = model(input_ids=input_ids_BS, labels=labels_BS, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if (step + 1) % 100 == 0:
            print(f"iteration {step + 1}: loss {loss.item():.4f}", flush=True)


def make_builtin(out: Path, *, iterations: int = ITERATIONS, seed: int = 0) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    train(model, tokenizer, iterations, random.Random(seed))
    model.train(False)
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
