"""Pools whose pass rates are known: one from a generative model, and chains as the built-in policy answers them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline_lib.config import ChainKind, ChainSource, Generation
from pipeline_lib.policy import load_policy
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import SamplingParams, TransformersEngine, roll_out

OLD_KINDS: list[ChainKind] = ["plus", "max"]
NEW_KINDS: list[ChainKind] = ["minus", "mixed", "times"]
SAMPLES = 32


@dataclass(frozen=True)
class World:
    """A pool without history, and the prompts of an older task; `rates` are per prompt id."""

    new: list[Prompt]
    old: list[Prompt]
    rates: dict[str, float]


def simulated(seed: int, count: int = 400) -> World:
    """log odds = 4 - 1.6·operations + operation + source + N(0, 1); the old task is another source."""
    rng = np.random.default_rng(seed)
    effect = {"+": 1.0, "-": 0.0, "*": -1.5}
    sources = {"old": 0.7, "new a": 0.3, "new b": -0.8}
    rates: dict[str, float] = {}
    prompts: dict[str, list[Prompt]] = {"old": [], "new": []}
    while min(len(prompts["old"]), len(prompts["new"])) < count:
        source = str(rng.choice(list(sources)))
        operation, operations = str(rng.choice(list(effect))), int(rng.integers(1, 7))
        text = operation.join(str(d) for d in rng.integers(10, size=operations + 1)) + "=?"
        prompt = Prompt(source, ({"role": "user", "content": text},), gold="0", verifier="exact")
        task = prompts["old" if source == "old" else "new"]
        if prompt.prompt_id in rates or len(task) == count:
            continue
        log_odds = 4 - 1.6 * operations + effect[operation] + sources[source] + rng.normal()
        rates[prompt.prompt_id] = float(1 / (1 + np.exp(-log_odds)))
        task.append(prompt)
    return World(prompts["new"], prompts["old"], rates)


def chains(cache: Path) -> World:
    """400 chains of three kinds, and 400 of two others for the old task; rates of SAMPLES completions, made once."""
    new, old = _chains(NEW_KINDS), _chains(OLD_KINDS)
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(_measured(new + old)))
    return World(new, old, json.loads(cache.read_text()))


def _chains(kinds: list[ChainKind]) -> list[Prompt]:
    source = ChainSource(kinds=kinds, lengths=[1, 2, 3, 4, 5, 6], count=400, seed=1)
    return [prompt for _, prompt in read_chains(source)]


def _measured(prompts: Sequence[Prompt]) -> dict[str, float]:
    policy = load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32, trainable=False)
    params = SamplingParams.of(Generation(max_tokens=40, max_prompt_tokens=32, batch_size=256), SAMPLES)
    with Grader() as grader:
        groups = roll_out(policy, TransformersEngine(policy), grader.grade, prompts, params, 0).groups
    return {g.prompt_id: g.n_correct / len(g.graded) for g in groups}
