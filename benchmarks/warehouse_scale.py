"""The warehouse at scale: rows written through its own interface, then the time of every view and named query.

    python benchmarks/warehouse_scale.py --rows 10000000 --root DIR

Two runs over one pool. Of `--rows` statistics nine in ten belong to the first run, in five stages that each train on
half of the pool; its sampler skips four proposals in ten. The results go to results/warehouse.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from machine import processor

from warehouse import Limits, Warehouse
from warehouse.named import QUERIES

GROUP_SIZE = 8
STAGES = 5
OBSERVATIONS = 36
"""Of one prompt in one stage that trains on it."""
CHUNK_OBSERVATIONS = 9
NOW = pa.scalar(1_750_000_000_000_000, pa.timestamp("us", "UTC"))
VIEWS = {
    "prompt_difficulty_history": "SELECT * FROM prompt_difficulty_history WHERE prompt_id = $prompt",
    "prompt_difficulty": "SELECT outcome, count(*) FROM prompt_difficulty WHERE run_id = 'big' GROUP BY 1",
    "prompt_difficulty, all rows": "SELECT * FROM prompt_difficulty",
    "prompt_paths": "SELECT count(*), max(length(outcomes)) FROM prompt_paths",
    "zero_variance_persistence": "SELECT * FROM zero_variance_persistence",
    "zero_variance_revivals": "SELECT * FROM zero_variance_revivals WHERE prompt_id = $prompt",
    "zero_variance_revivals, all": "SELECT from_outcome, count(*) FROM zero_variance_revivals GROUP BY 1",
    "sampler_efficiency": "SELECT * FROM sampler_efficiency",
    "evaluation_history": "SELECT * FROM evaluation_history",
    "selection_history": "SELECT stage, selected, count(*), avg(pass_rate) FROM selection_history GROUP BY ALL",
    "selection_overlap": "SELECT * FROM selection_overlap",
    "stage_diagnosis": "SELECT * FROM stage_diagnosis WHERE run_id = 'big'",
    "run_progress": "SELECT * FROM run_progress",
    "stage_summary": "SELECT * FROM stage_summary",
    "rollout_settings": "SELECT * FROM rollout_settings",
}
GIVEN = {"prompt": "", "run": "big", "other": "small", "after": "5"}


class Filling:
    """Tables of the two runs, made of a latent pass rate a prompt that training raises."""

    def __init__(self, n_rows: int) -> None:
        self.rng = np.random.default_rng(7)
        self.n_prompts = max(1000, n_rows // (1 + int(STAGES * 0.5 * OBSERVATIONS / 0.9)))
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
    yield "offline", {"rollout_stats": filling.statistics(everyone, range(1), "offline")}
    yield "offline", {"steps": step_row("offline", "rollouts_train")}
    for run, stages, share in (("big", STAGES, 0.5), ("small", 1, 0.25)):
        for stage in range(1, stages + 1):
            prefix, chosen = f"{run}-{stage}-", filling.chosen(share)
            taken += [(run, stage, name, prefix + name) for name in ("score", "select", "train")]
            for validation_set in ("gsm", "math"):
                yield prefix + "score", {"influence_scores": filling.scores(validation_set)}
            yield prefix + "select", {"selections": filling.selection(chosen)}
            for first in range(1, OBSERVATIONS + 1, CHUNK_OBSERVATIONS):
                steps = range(first, first + CHUNK_OBSERVATIONS)
                yield prefix + "train", {"sampler_decisions": filling.decisions(chosen, steps)}
                yield prefix + "train", {"rollout_stats": filling.statistics(chosen, steps, "train")}
            yield prefix + "train", {"steps": step_row(prefix + "train", "train")}
    names = ("run_id", "stage", "name", "fingerprint")
    yield "", {"run_steps": pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in taken])}


def fill(warehouse: Warehouse, n_rows: int) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    rows: dict[str, int] = {}
    for fingerprint, tables in batches(Filling(n_rows)):
        started = time.perf_counter()
        warehouse.write(tables, fingerprint=fingerprint)
        [name] = list(tables)[:1]
        seconds[name] = seconds.get(name, 0) + time.perf_counter() - started
        rows[name] = rows.get(name, 0) + tables[name].num_rows
        print(f"{name:<20} {rows[name]:>12,} rows {seconds[name]:>8.1f} s", flush=True)
    started = time.perf_counter()
    warehouse.publish()
    return {
        "rows": rows,
        "rows_per_second": {name: round(rows[name] / seconds[name]) for name in rows},
        "publish_seconds": round(time.perf_counter() - started, 2),
    }


def timed(ask: Callable[[], pa.Table]) -> dict[str, Any]:
    """Medians of three, after one to warm up; `cpu` is the processor time of all threads."""
    seconds, cpu = [], []
    for _ in range(4):
        started, cpu_started = time.perf_counter(), time.process_time()
        n_rows = ask().num_rows
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    medians = (round(statistics.median(times[1:]), 3) for times in (seconds, cpu))
    return {**dict(zip(("seconds", "cpu"), medians, strict=True)), "rows": n_rows}


def ask_all(warehouse: Warehouse) -> dict[str, Any]:
    prompt = warehouse.ask("SELECT prompt_id FROM selections WHERE selected LIMIT 1")["prompt_id"][0].as_py()
    limits, given = Limits("8GB", 600), GIVEN | {"prompt": prompt}
    found: dict[str, Any] = {}
    for name, sql in VIEWS.items():
        parameters = {"prompt": prompt} if "$prompt" in sql else None
        found[name] = timed(lambda: warehouse.ask(sql, parameters, limits=limits))
        print(f"view  {name:<32} {found[name]}", flush=True)
    for name, query in QUERIES.items():
        values = query.values({p.name: given[p.name] for p in query.parameters if p.name in given})
        found[f"query {name}"] = timed(lambda: warehouse.ask(query.sql, values, limits=limits))
        print(f"query {name:<32} {found[f'query {name}']}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="statistics rows")
    parser.add_argument("--root", type=Path, required=True, help="an empty directory, or one filled before")
    options = parser.parse_args()
    warehouse = Warehouse(options.root)
    path = Path(__file__).parent / "results" / "warehouse.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    results: dict[str, Any] = kept.get("queries", {}) | {"processor": processor()}
    if not warehouse.path.exists():
        results["written"] = fill(warehouse, options.rows)
    warehouse.publish()
    results["asked"] = ask_all(warehouse)
    # One of its rows written again: the last stage of the first run counts as still training, its totals are not kept.
    again = warehouse.query("FROM rollout_stats WHERE fingerprint = 'big-5-train' LIMIT 1")
    warehouse.write({"rollout_stats": again})
    warehouse.publish()
    results["asked_while_training"] = ask_all(warehouse)
    warehouse.write({"steps": step_row("big-5-train", "train")})
    warehouse.publish()
    results["database_bytes"] = warehouse.path.stat().st_size
    results["peak_resident_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    path.write_text(json.dumps(kept | {"queries": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
