"""Writes a small plausible run into an empty warehouse: 60 prompts of 3 kinds, up to 2 stages."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pipeline_lib.selection.diagnosis import diagnose

WAREHOUSE = Path(__file__).parents[2] / "warehouse"
RUN_ID, OTHER_ID = "two-stages", "other"
KINDS = ("plus", "times", "max")
GROUP_SIZE = 8
STEPS = 12
SELECTED = 24
EVALUATION_SETS = {name: [f"{name}-{i:02d}" for i in range(20)] for name in ("held_out", "hard")}
NASTY_PROMPT = '</script><script>console.error("ran")</script> $\\frac{1}{2}$ & <b>é</b> 数学 🙂 \u202eleft'


def empty_warehouse() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for definition in ("schema.sql", "views.sql"):
        connection.execute((WAREHOUSE / definition).read_text())
    return connection


def fabricate(
    connection: duckdb.DuckDBPyConnection,
    *,
    run_id: str = RUN_ID,
    stages: int = 2,
    strategy: str = "influence",
    finished: bool = True,
    skips: bool = True,
    seed: int = 7,
) -> None:
    """`finished=False` stops before anything but the run itself is known."""
    _Fabricator(connection, run_id, strategy, skips, seed).run(stages, finished)


class _Fabricator:
    def __init__(
        self, connection: duckdb.DuckDBPyConnection, run_id: str, strategy: str, skips: bool, seed: int
    ) -> None:
        self.connection = connection
        self.run_id = run_id
        self.strategy = strategy
        self.skips = skips
        self.random = random.Random(7)  # the skills are those of the prompts, the same in every run
        self.skill = {f"{i:016x}": self.random.gauss(-0.3, 1.2) for i in range(60)}
        self.random.seed(seed)
        self.mixed: dict[str, bool] = {}
        self.clock = datetime(2026, 3, 1, 10, tzinfo=UTC)
        self.cosine = dict(self.skill)
        self.cosine_by_set: dict[str, np.ndarray] = {}

    def insert(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        arrow = pa.Table.from_pylist(list(rows))
        self.connection.register("incoming", arrow)
        self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        if table in ("rollout_stats", "sampler_decisions"):  # as Warehouse.write: no step has gathered its totals
            self.connection.execute("INSERT INTO ungathered SELECT fingerprint FROM incoming EXCEPT FROM ungathered")
        self.connection.unregister("incoming")

    def taken(self, stage: int, name: str) -> str:
        return f"{name}-{stage}" if self.run_id == RUN_ID else f"{name}-{stage}-{self.run_id}"

    def take(self, stage: int, name: str, seconds: float = 30.0) -> str:
        fingerprint = self.taken(stage, name)
        row = {"run_id": self.run_id, "stage": stage, "name": name, "fingerprint": fingerprint}
        self.insert("run_steps", [row])
        started, self.clock = self.clock, self.clock + timedelta(seconds=seconds)
        step = {"fingerprint": fingerprint, "name": name, "status": "completed", "settings": "{}", "inputs": "{}"}
        self.insert("steps", [{**step, "attempts": 1, "started_at": started, "finished_at": self.clock}])
        return fingerprint

    def run(self, stages: int, finished: bool) -> None:
        config = {
            "name": self.run_id,
            "policy": {"type": "pretrained", "path": "/somewhere/models/tiny-reasoner"},
            "selection": {"type": self.strategy, "alpha": 0.4},
            "train": {"group_size": GROUP_SIZE, "sampler": {"type": "greso" if self.skips else "uniform"}},
            "influence": {"max_kl": 0.1, "min_ess": 0.5},
        }
        self.connection.execute(
            "INSERT INTO runs VALUES (?, ?, 'abc', ?, ?, '2026-03-01 10:00:00+00', '2026-03-01 11:30:00+00')",
            [self.run_id, json.dumps(config), max(stages, 1), "completed" if finished else "running"],
        )
        if not finished:
            return
        self.ingest()
        self.offline()
        self.evaluate(0)
        for stage in range(1, stages + 1):
            self.score(stage)
            selected = self.select(stage)
            self.diagnose(stage)
            self.train(stage, selected)
            self.evaluate(stage)

    def ingest(self) -> None:
        fingerprint = self.take(0, "ingest")
        prompts = [
            {
                "prompt_id": prompt_id,
                "data_source": "chains",
                "messages": json.dumps(
                    [
                        {"role": "system", "content": "Work modulo 10."},
                        {"role": "user", "content": NASTY_PROMPT if i == 0 else f"{i}+{i % 7}*{i % 3}="},
                    ]
                ),
                "gold": str(i % 10),
                "verifier": "exact",
                "verifier_args": "{}",
                "extra": json.dumps({"kind": KINDS[i % 3]}),
            }
            for i, prompt_id in enumerate(self.skill)
        ]
        self.insert("prompts", prompts)
        place = {"fingerprint": fingerprint, "split": "train", "set_name": "train", "source": "chains"}
        held_out = [
            {**place, "split": "evaluation", "set_name": name, "row_index": i, "prompt_id": prompt_id}
            for name, ids in EVALUATION_SETS.items()
            for i, prompt_id in enumerate(ids)
        ]
        self.insert("prompt_sources", held_out)
        # Row 60 is a duplicate of prompt 0.
        ids = [*self.skill, next(iter(self.skill))]
        sources = [{**place, "row_index": i, "prompt_id": prompt_id} for i, prompt_id in enumerate(ids)]
        self.insert("prompt_sources", sources)
        reasons = [("no_gold", "row has no `answer`")] * 3 + [("conflicting_gold", "<b>4</b> and 5")] * 2
        self.insert(
            "prompt_rejects",
            [
                {**place, "row_index": 100 + i, "reason": reason, "detail": detail}
                for i, (reason, detail) in enumerate(reasons)
            ],
        )

    def chance(self, prompt_id: str, progress: float) -> float:
        return 1 / (1 + math.exp(-(self.skill[prompt_id] + 1.8 * progress) * 1.6))

    def group(
        self, fingerprint: str, prompt_id: str, progress: float, *, step: int, phase: str, policy: str
    ) -> dict[str, Any]:
        n, p = GROUP_SIZE, self.chance(prompt_id, progress)
        correct = sum(self.random.random() < p for _ in range(n))
        outcome = "all_right" if correct == n else "all_wrong" if correct == 0 else "mixed"
        return {
            "fingerprint": fingerprint,
            "prompt_id": prompt_id,
            "step": step,
            "phase": phase,
            "policy_id": policy,
            "n": n,
            "n_correct": correct,
            "n_ungraded": 0,
            "reward_mean": correct / n,
            "reward_std": 0.3,
            "outcome": outcome,
            "has_signal": outcome == "mixed",
            "n_truncated": 0,
            "mean_length": 12.0,
            "max_length": 20,
        }

    def offline(self) -> None:
        policy = {"policy_id": "policy-0", "path": "policies/0", "parent_policy_id": None}
        self.insert("policies", [{**policy, "fingerprint": self.take(0, "policy"), "n_parameters": 135_000_000}])
        pool = list(self.skill)
        for name, ids in (("rollouts_validation", pool[:10]), ("rollouts_train", pool)):
            fingerprint = self.take(0, name, 400.0)
            groups = [self.group(fingerprint, i, 0, step=0, phase="offline", policy="policy-0") for i in ids]
            self.insert("rollout_stats", groups)
            self.mixed = {group["prompt_id"]: group["outcome"] == "mixed" for group in groups}

    def evaluate(self, stage: int) -> None:
        fingerprint = self.take(stage, "evaluate", 90.0)
        self.insert("rollout_stats", [g for ids in EVALUATION_SETS.values() for g in self.held_out(stage, ids)])
        place = {"fingerprint": fingerprint, "policy_id": f"policy-{stage}", "n_prompts": 64}
        rows = []
        lead = 0.14 if self.skips else 0.10
        for name, base in (("held_out", 0.42), ("hard", 0.12)):
            average = base + lead * stage
            for metric, k, value in (
                ("avg", 8, average),
                ("pass", 1, average),
                ("pass", 8, 1 - (1 - average) ** 4),
            ):
                row = {"evaluation_set": name, "metric": metric, "k": k, "value": value}
                rows.append({**place, **row, "standard_error": 0.021})
        self.insert("evaluations", rows)

    def held_out(self, stage: int, ids: list[str]) -> list[dict[str, Any]]:
        """The prompts' skill is that of prompts of the pool."""
        fingerprint = self.taken(stage, "evaluate")
        alike = list(self.skill)
        groups = [
            self.group(fingerprint, alike[i], stage / 2, step=0, phase="evaluation", policy=f"policy-{stage}")
            for i in range(len(ids))
        ]
        return [{**group, "prompt_id": prompt_id} for group, prompt_id in zip(groups, ids, strict=True)]

    def score(self, stage: int) -> None:
        fingerprint = self.take(stage, "score", 200.0)
        if self.strategy != "influence":
            return
        rows = []
        for validation_set in ("validation", "validation_hard"):
            cosines = {i: self.random.gauss(0.3 / stage, 0.2) if self.mixed[i] else 0.0 for i in self.skill}
            ranked = sorted(cosines, key=lambda i: (-cosines[i], i))
            rows += [
                {
                    "fingerprint": fingerprint,
                    "prompt_id": prompt_id,
                    "validation_set": validation_set,
                    "dot": cosines[prompt_id],
                    "cosine": cosines[prompt_id],
                    "norm": float(self.mixed[prompt_id]),
                    "rank": rank,
                }
                for rank, prompt_id in enumerate(ranked, start=1)
            ]
            self.cosine = cosines
            self.cosine_by_set[validation_set] = np.array(list(cosines.values()))
        self.insert("influence_scores", rows)
        kls = {i: 0.01 + 0.02 * (stage - 1) * self.random.random() * 4 for i in self.skill}
        drift = {"fingerprint": fingerprint, "split": "train", "n_tokens": 96, "sequence_ess": 0.5}
        self.insert(
            "rollout_drift",
            [{**drift, "prompt_id": i, "kl": kl, "ess": 1 - 4 * kl, "stale": kl > 0.1} for i, kl in kls.items()],
        )
        halves = [("split_half_spearman", 0.61), ("split_half_reliability", 0.76)]
        facts = [{"subject": name, "metric": m, "value": v, "n": 40} for name in self.cosine_by_set for m, v in halves]
        self.insert("diagnoses", [{"fingerprint": fingerprint, **fact} for fact in facts])

    def select(self, stage: int) -> list[str]:
        fingerprint = self.take(stage, "select")
        ranked = sorted(self.skill, key=lambda i: -self.cosine[i])
        self.insert(
            "selections",
            [
                {
                    "fingerprint": fingerprint,
                    "prompt_id": prompt_id,
                    "strategy": self.strategy,
                    "score": 2 / rank,
                    "rank": rank,
                    "selected": rank <= SELECTED,
                    "reason": f"ranks {rank} and {rank + 3} on validation, validation_hard",
                }
                for rank, prompt_id in enumerate(ranked, start=1)
            ],
        )
        return ranked[:SELECTED]

    def diagnose(self, stage: int) -> None:
        fingerprint = self.take(stage, "diagnose")
        score = np.array(list(self.cosine.values()))
        selected = score >= np.sort(score)[-SELECTED]
        signal = np.array([self.mixed[prompt_id] for prompt_id in self.skill])
        facts = diagnose(score, selected, signal, self.cosine_by_set).to_pylist()
        self.insert("diagnoses", [{"fingerprint": fingerprint, **fact} for fact in facts])

    def train(self, stage: int, selected: list[str]) -> None:
        fingerprint = self.take(stage, "train", 900.0)
        decisions, stats, steps = [], [], []
        for step in range(1, STEPS + 1):
            progress = stage - 1 + step / STEPS
            batch = self.random.sample(selected, 10)
            skipped = [i for i in batch if self.skips and step > 3 and not 0.04 < self.chance(i, progress / 2) < 0.96]
            decisions += [
                {
                    "fingerprint": fingerprint,
                    "step": step,
                    "position": position,
                    "prompt_id": prompt_id,
                    "epoch": step // 3,
                    "keep": prompt_id not in skipped,
                    "keep_probability": 0.25 if prompt_id in skipped else 1.0,
                    "reason": "all_right run of 2" if prompt_id in skipped else "no run",
                }
                for position, prompt_id in enumerate(batch)
            ]
            groups = [
                self.group(fingerprint, i, progress / 2, step=step, phase="train", policy=f"policy-{stage - 1}")
                for i in batch
                if i not in skipped
            ]
            stats += groups
            steps.append(self.train_step(fingerprint, step, progress, [group["outcome"] for group in groups]))
        self.insert("sampler_decisions", decisions)
        self.insert("rollout_stats", stats)
        self.insert("train_steps", steps)

    def train_step(self, fingerprint: str, step: int, progress: float, outcomes: list[str]) -> dict[str, Any]:
        n = len(outcomes)
        return {
            "fingerprint": fingerprint,
            "step": step,
            "loss": 0.01,
            "reward": 0.35 + 0.2 * progress + self.random.gauss(0, 0.03),
            "frac_reward_zero_std": 1 - outcomes.count("mixed") / n,
            "solved_all": outcomes.count("all_right"),
            "solved_some": outcomes.count("mixed"),
            "solved_none": outcomes.count("all_wrong"),
            "n_ungraded": 0,
            "grad_norm": 0.5 + self.random.random() * 0.2,
            "learning_rate": 1e-6,
            "entropy": 0.9 - 0.2 * progress + self.random.gauss(0, 0.02),
            "num_tokens": 1000 * step,
            "generated_tokens": 1000,
            "generation_rounds": 1 + (step % 5 == 0),
            "prompts_proposed": 10,
            "prompts_skipped": 10 - n,
            "prompts_rolled_out": n,
            "rollouts": n * GROUP_SIZE,
            "groups_trained": outcomes.count("mixed"),
            "groups_carried": 0,
            "sampler_metrics": "{}",
            "step_time": 1.1,
            "rollout_time": 0.5 * n / 10,
            "verify_time": 0.1,
            "update_time": 0.4,
        }
