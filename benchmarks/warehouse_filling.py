"""Rows of two runs over one pool, as their steps would write them. Of a latent pass rate a prompt that training raises.

The first run has five stages that each train on half of the pool, the second one stage on a quarter; a sampler skips
four proposals in ten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

GROUP_SIZE = 8
STAGES = 5
RUNS = (("big", STAGES, 0.5), ("small", 1, 0.25))
CHUNK = 500_000
"""Statistics of one write, about."""
SETS = ("gsm", "math", "code", "logic", "chemistry")
"""Of validation; the last stage is scored on all of them, the others on two."""
NOW = pa.scalar(1_750_000_000_000_000, pa.timestamp("us", "UTC"))


class Filling:
    """`n_rows` statistics, about, of `n_prompts`: one of each offline, the others in the stages that train on it."""

    def __init__(self, n_rows: int, n_prompts: int) -> None:
        self.rng = np.random.default_rng(7)
        self.n_prompts = n_prompts
        self.observations = max(1, round((n_rows / n_prompts - 1) / sum(n * share for _, n, share in RUNS)))
        self.prompt_ids = pa.array([f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(self.n_prompts)])
        self.rate = self.rng.beta(0.4, 0.4, self.n_prompts)

    def chosen(self, share: float) -> np.ndarray[Any, Any]:
        return np.sort(self.rng.choice(self.n_prompts, int(share * self.n_prompts), replace=False))

    def statistics(self, prompts: np.ndarray[Any, Any], steps: range, phase: str) -> pa.Table:
        """One observation of each prompt at each step, the order of a training's records: by step."""
        index, step = np.tile(prompts, len(steps)), np.repeat(np.array(steps, np.int32), len(prompts))
        rate = np.clip(self.rate[index] + 0.01 * step, 0, 1)
        n_correct = self.rng.binomial(GROUP_SIZE, rate).astype(np.int32)
        mixed = (n_correct > 0) & (n_correct < GROUP_SIZE)
        n, mean = len(index), n_correct / GROUP_SIZE
        outcome = np.where(mixed, "mixed", np.where(n_correct == 0, "all_wrong", "all_right"))
        lengths = self.rng.gamma(4, 60, n)
        return pa.table(
            {
                "prompt_id": self.prompt_ids.take(pa.array(index)),
                "step": step,
                "phase": pa.repeat(phase, n),
                "policy_id": pa.repeat("policy", n),
                "n": np.full(n, GROUP_SIZE, np.int32),
                "n_correct": n_correct,
                "n_ungraded": (self.rng.random(n) < 0.01).astype(np.int32),
                "reward_mean": mean,
                "reward_std": np.sqrt(mean * (1 - mean) * GROUP_SIZE / (GROUP_SIZE - 1)),
                "outcome": outcome,
                "has_signal": mixed,
                "n_truncated": (self.rng.random(n) < 0.05).astype(np.int32),
                "mean_length": lengths,
                "max_length": (lengths * 2).astype(np.int32),
            }
        )

    def decisions(self, prompts: np.ndarray[Any, Any], steps: range) -> pa.Table:
        """Of those kept, one a statistic; and two skipped to three kept."""
        skipped = self.rng.choice(prompts, 2 * len(prompts) // 3)
        proposed = np.concatenate([prompts, skipped])
        keep = np.repeat([True, False], [len(prompts), len(skipped)])
        n, times = len(proposed), len(steps)
        return pa.table(
            {
                "step": np.repeat(np.array(steps, np.int32), n),
                "position": np.tile(np.arange(n, dtype=np.int32), times),
                "prompt_id": self.prompt_ids.take(pa.array(np.tile(proposed, times))),
                "epoch": np.full(n * times, 1, np.int32),
                "round": np.zeros(n * times, np.int32),
                "keep": np.tile(keep, times),
                "keep_probability": np.full(n * times, 0.6),
                "reason": np.where(np.tile(keep, times), "kept", "zero_variance"),
            }
        )

    def selection(self, selected: np.ndarray[Any, Any]) -> pa.Table:
        taken = np.zeros(self.n_prompts, bool)
        taken[selected] = True
        return pa.table(
            {
                "prompt_id": self.prompt_ids,
                "strategy": pa.repeat("influence", self.n_prompts),
                "score": self.rng.random(self.n_prompts),
                "rank": (self.rng.permutation(self.n_prompts) + 1).astype(np.int32),
                "selected": taken,
                "reason": np.where(taken, "top_alpha", "below_alpha"),
                "pass_rate": self.rng.integers(0, GROUP_SIZE + 1, self.n_prompts) / GROUP_SIZE,
            }
        )

    def scores(self, validation_set: str) -> pa.Table:
        cosine = self.rng.normal(0, 0.1, self.n_prompts)
        return pa.table(
            {
                "prompt_id": self.prompt_ids,
                "validation_set": pa.repeat(validation_set, self.n_prompts),
                "dot": cosine,
                "cosine": cosine,
                "norm": np.ones(self.n_prompts),
                "rank": (self.rng.permutation(self.n_prompts) + 1).astype(np.int32),
                "estimator": pa.repeat("exact", self.n_prompts),
            }
        )

    def pool(self) -> dict[str, pa.Table]:
        n = self.n_prompts
        texts = {"gold": "7", "verifier": "math", "verifier_args": "{}", "extra": '{"kind": "sum"}'}
        messages = [f'[{{"role": "user", "content": "What is {i} + 7? {"Think about it. " * 10}"}}]' for i in range(n)]
        columns = {"prompt_id": self.prompt_ids, "data_source": pa.repeat("sums", n), "messages": messages}
        sources = {"split": "train", "set_name": "train", "source": "pool.jsonl"}
        return {
            "prompts": pa.table(columns | {name: pa.repeat(text, n) for name, text in texts.items()}),
            "prompt_sources": pa.table(
                {name: pa.repeat(text, n) for name, text in sources.items()}
                | {"row_index": np.arange(n), "prompt_id": self.prompt_ids}
            ),
        }

    def validation(self) -> pa.Table:
        sets = {"split": "validation", "source": "sets.jsonl", "prompt_id": "of validation"}
        columns = {name: pa.repeat(text, len(SETS)) for name, text in sets.items()}
        return pa.table(columns | {"set_name": list(SETS), "row_index": np.arange(len(SETS))})


def step_row(fingerprint: str, name: str) -> pa.Table:
    """Completed: the warehouse gathers its totals."""
    generation = {"engine": "vllm", "temperature": 1.0, "max_tokens": 1024}
    row = {
        "fingerprint": fingerprint,
        "name": name,
        "status": "completed",
        "settings": json.dumps({"generation": generation, "samples": GROUP_SIZE}),
        "inputs": "{}",
        "attempts": 1,
        "started_at": NOW.as_py(),
        "finished_at": NOW.as_py(),
    }
    return pa.Table.from_pylist([row])


def batches(filling: Filling) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """What the steps of two runs would write, in their order: the fingerprint and the tables."""
    everyone = np.arange(filling.n_prompts)
    taken = [
        ("big", 0, "ingest", "ingest"),
        ("big", 0, "rollouts_train", "offline"),
        ("small", 0, "rollouts_train", "offline"),
    ]
    yield "ingest", filling.pool()
    yield "ingest", {"prompt_sources": filling.validation()}
    for part in np.array_split(everyone, max(1, filling.n_prompts // CHUNK)):
        yield "offline", {"rollout_stats": filling.statistics(part, range(1), "offline")}
    yield "offline", {"steps": step_row("offline", "rollouts_train")}
    for run, stages, share in RUNS:
        for stage in range(1, stages + 1):
            prefix, chosen = f"{run}-{stage}-", filling.chosen(share)
            taken += [(run, stage, name, prefix + name) for name in ("score", "select", "train")]
            for validation_set in SETS if (run, stage) == ("big", STAGES) else SETS[:2]:
                yield prefix + "score", {"influence_scores": filling.scores(validation_set)}
            yield prefix + "select", {"selections": filling.selection(chosen)}
            at_once = max(1, CHUNK // len(chosen))
            for first in range(1, filling.observations + 1, at_once):
                steps = range(first, min(first + at_once, filling.observations + 1))
                yield prefix + "train", {"sampler_decisions": filling.decisions(chosen, steps)}
                yield prefix + "train", {"rollout_stats": filling.statistics(chosen, steps, "train")}
            yield prefix + "train", {"steps": step_row(prefix + "train", "train")}
    names = ("run_id", "stage", "name", "fingerprint")
    yield "", {"run_steps": pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in taken])}
