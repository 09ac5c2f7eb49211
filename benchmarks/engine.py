"""Sampled tokens a second: the transformers engine beside plain `generate`, and beside itself without its parts.

    PYTHONPATH=. .venv/bin/python benchmarks/engine.py demo
    PYTHONPATH=. .venv/bin/python benchmarks/engine.py smollm2 --policy ROOT/policies/SmolLM2-135M-...

The second policy's directory is made by a run of configs/smollm2_cpu.yaml. The contenders take turns in one process on
one thread; seconds are the process's own. Each command writes its part of results/engine.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from machine import processor
from rich.console import Console
from rich.table import Table
from transformers import GenerationConfig

from pipeline_lib.config_file import load_config
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.sources import open_source
from pipeline_lib.records import Prompt
from pipeline_lib.rollout import SamplingParams, TransformersEngine, row_cache, transformers_engine

CONFIGS = Path(__file__).parents[1] / "configs"
Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Case:
    policy: Path
    prompts: list[Prompt]
    params: SamplingParams


def sampled_by_engine(policy: Policy, prompts: Prompts, params: SamplingParams, seed: int) -> list[int]:
    completions = TransformersEngine(policy).generate(prompts, params, seed)
    return [len(completion.token_ids) for group in completions for completion in group]


def sampled_by_generate(policy: Policy, prompts: Prompts, params: SamplingParams, seed: int) -> list[int]:
    """Each prompt `n` times, in the order given, `batch_size` sequences at once; the log-probs are not asked for."""
    torch.manual_seed(seed)
    config = GenerationConfig(
        do_sample=True,
        temperature=params.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=params.max_tokens,
        num_return_sequences=params.n,
        suppress_tokens=list(policy.suppressed_token_ids) or None,
        eos_token_id=list(policy.eos_token_ids),
        pad_token_id=policy.pad_token_id,
    )
    lengths: list[int] = []
    at_once = max(1, params.batch_size // params.n)
    for start in range(0, len(prompts), at_once):
        batch = prompts[start : start + at_once]
        P = max(map(len, batch))
        padded_BP = torch.tensor([[policy.pad_token_id] * (P - len(prompt)) + list(prompt) for prompt in batch])
        mask_BP = torch.tensor([[0] * (P - len(prompt)) + [1] * len(prompt) for prompt in batch])
        with torch.no_grad():
            sequences_BS = policy.model.generate(input_ids=padded_BP, attention_mask=mask_BP, generation_config=config)
        for row in sequences_BS[:, P:].tolist():
            ended = [place for place, token in enumerate(row) if token in policy.eos_token_ids]
            lengths.append(ended[0] + 1 if ended else len(row))
    return lengths


def by_length(policy: Policy, prompts: Prompts, params: SamplingParams, seed: int) -> list[int]:
    return sampled_by_generate(policy, sorted(prompts, key=len), params, seed)


@contextmanager
def heads_apart(policy: Policy) -> Iterator[None]:
    with mock.patch.object(type(policy.model), "_supports_attention_backend", False):
        yield


Contender = tuple[Callable[[Policy], AbstractContextManager[Any]], Callable[..., list[int]]]
CONTENDERS: dict[str, Contender] = {
    "engine": (lambda policy: nullcontext(), sampled_by_engine),
    "generate": (lambda policy: nullcontext(), sampled_by_generate),
    "generate, by length": (lambda policy: nullcontext(), by_length),
    "engine: no row leaves": (
        lambda policy: mock.patch.object(transformers_engine, "ENDED_SHARE", 1.0),
        sampled_by_engine,
    ),
    "engine: no room kept": (lambda policy: mock.patch.object(row_cache, "ROOM", 1), sampled_by_engine),
    "engine: heads apart": (heads_apart, sampled_by_engine),
}
OFTEN = ("engine", "generate")
RESULTS = Path(__file__).parent / "results/engine.json"


def smollm2_case(policy: Path, prompts: int, max_tokens: int) -> Case:
    """Prompts of configs/smollm2_cpu.yaml, reasoning-gym tasks and GSM8K questions, in one random order."""
    config = load_config(CONFIGS / "smollm2_cpu.yaml")
    [train] = config.prompts.train
    gym = [prompt for _, prompt in open_source(train).prompts if isinstance(prompt, Prompt)]
    [gsm8k] = config.prompts.validation["gsm8k"]
    questions = [prompt for _, prompt in open_source(gsm8k).prompts if isinstance(prompt, Prompt)]
    every = max(1, len(gym) * 4 // (prompts * 3))
    mixed = [*gym[::every], *questions]
    torch.manual_seed(0)
    order = torch.randperm(len(mixed)).tolist()
    params = SamplingParams(n=8, temperature=1.0, max_tokens=max_tokens, batch_size=32)
    return Case(policy, [mixed[place] for place in order][:prompts], params)


def demo_case() -> Case:
    """A training step of configs/demo.yaml: 32 prompts, 8 completions each, all at once."""
    config = load_config(CONFIGS / "demo.yaml")
    [train] = config.prompts.train
    prompts = [prompt for _, prompt in open_source(train).prompts if isinstance(prompt, Prompt)]
    return Case(BUILTIN_DIRECTORY, prompts[:: len(prompts) // 32][:32], SamplingParams.of(config.generation, n=8))


def measure(case: Case, repeats: int, rarely: int) -> dict[str, Any]:
    """All contenders in the first `rarely` repeats, two of them in all."""
    policy = load_policy(case.policy, device=torch.device("cpu"), dtype=torch.float32)
    prompts = [policy.encode(prompt.messages) for prompt in case.prompts]
    speeds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    lengths: list[int] = []
    for seed in range(repeats):
        for name in CONTENDERS if seed < rarely else OFTEN:
            prepare, sample = CONTENDERS[name]
            with prepare(policy):
                began = time.process_time()
                lengths = sample(policy, prompts, case.params, seed)
                seconds = time.process_time() - began
            speeds[name].append(sum(lengths) / seconds)
            print(f"{name}: {sum(lengths)} tokens in {seconds:.2f} s", flush=True)
    return {
        "prompts": len(prompts),
        "prompt tokens": [min(map(len, prompts)), round(statistics.fmean(map(len, prompts))), max(map(len, prompts))],
        "completion tokens": [min(lengths), round(statistics.fmean(lengths)), max(lengths)],
        "n": case.params.n,
        "at once": case.params.batch_size,
        "tokens a second": speeds,
    }


def shown(results: dict[str, dict[str, Any]]) -> Table:
    table = Table("case", "contender", "tokens / s", "× generate")
    for case, result in results.items():
        speeds = result["tokens a second"]
        for name, values in speeds.items():
            ratios = [own / plain for own, plain in zip(values, speeds["generate"], strict=False)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            table.add_row(case, name, f"{statistics.median(values):,.0f}", spread)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("demo", "smollm2"))
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--max-tokens", type=int, default=96)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.case == "demo":
        result = measure(demo_case(), repeats=20, rarely=20)
    else:
        result = measure(smollm2_case(args.policy, args.prompts, args.max_tokens), repeats=3, rarely=1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = known | {args.case: {"machine": processor(), "threads": 1} | result}
    Console(width=120).print(shown(results))
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
