"""A run of two stages in a real warehouse, small enough to know every number of its pages by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from warehouse import Warehouse

RUN = "r"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEPS = [
    (0, "ingest", "ing"),
    (0, "rollouts_train", "off"),
    (0, "evaluate", "ev0"),
    (1, "select", "sel1"),
    (1, "train", "tr1"),
    (1, "evaluate", "ev1"),
    (2, "select", "sel2"),
]
COUNTS = {
    "train/train": {"rows": 6, "prompts": 4, "duplicates": 1, "rejects": {"no_gold": 1}},
    "evaluation/gsm": {"rows": 2, "prompts": 2, "duplicates": 0, "rejects": {}},
}


def two_stages(root: Path) -> Warehouse:
    warehouse = Warehouse(root)
    tables = {
        "run_steps": [{"run_id": RUN, "stage": m, "name": name, "fingerprint": f} for m, name, f in STEPS],
        "steps": [_step(name, fingerprint) for _, name, fingerprint in STEPS],
        "prompts": [_prompt(i) for i in "abcd"],
        "rollout_stats": [
            *(_stats("off", i, n) for i, n in {"a": 0, "b": 4, "c": 2, "d": 4}.items()),
            _stats("tr1", "a", 1, step=1, phase="train"),
        ],
        "selections": [
            *(_selection("sel1", i, rank, selected=rank < 3) for rank, i in enumerate("acbd", 1)),
            *(_selection("sel2", i, rank, selected=rank < 3) for rank, i in enumerate("dabc", 1)),
        ],
        "train_steps": [train_step(step, reward=step / 100) for step in range(1, 26)],
        "evaluations": [
            _evaluation("ev0", "avg", 0.2),
            _evaluation("ev0", "pass", 0.6),
            _evaluation("ev1", "avg", 0.5),
            _evaluation("ev1", "pass", 0.7),
        ],
    }
    warehouse.write({name: pa.Table.from_pylist(rows) for name, rows in tables.items()})
    warehouse.publish()
    return warehouse


def train_step(step: int, **values: Any) -> dict[str, Any]:
    zeros = (
        "loss solved_all solved_some solved_none n_ungraded grad_norm learning_rate num_tokens generated_tokens "
        "generation_rounds prompts_proposed prompts_rolled_out groups_trained groups_carried step_time rollout_time "
        "verify_time update_time"
    )
    known = {"rollouts": 8, "prompts_skipped": 3, "frac_reward_zero_std": 0.25}
    row = {"fingerprint": "tr1", "step": step, "sampler_metrics": "{}"}
    return row | dict.fromkeys(zeros.split(), 0) | known | values


def _step(name: str, fingerprint: str) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "name": name,
        "status": "completed",
        "settings": "{}",
        "inputs": "{}",
        "outputs": json.dumps({"sets": COUNTS}) if name == "ingest" else "{}",
        "attempts": 1,
        "started_at": NOON,
        "finished_at": NOON + timedelta(seconds=30),
    }


def _prompt(prompt_id: str) -> dict[str, Any]:
    return {
        "prompt_id": prompt_id,
        "data_source": "sums",
        "messages": json.dumps([{"role": "user", "content": f"What is {prompt_id}?"}]),
        "gold": "1",
        "verifier": "exact",
        "verifier_args": "{}",
        "extra": json.dumps({"kind": "letter"}),
    }


def _stats(
    fingerprint: str, prompt_id: str, n_correct: int, *, step: int = 0, phase: str = "offline"
) -> dict[str, Any]:
    outcome = {0: "all_wrong", 4: "all_right"}.get(n_correct, "mixed")
    return {
        "fingerprint": fingerprint,
        "prompt_id": prompt_id,
        "step": step,
        "phase": phase,
        "policy_id": "p0",
        "n": 4,
        "n_correct": n_correct,
        "n_ungraded": 0,
        "outcome": outcome,
        "has_signal": outcome == "mixed",
        "n_truncated": 0,
        "mean_length": 10.0,
        "max_length": 12,
    }


def _selection(fingerprint: str, prompt_id: str, rank: int, *, selected: bool) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "prompt_id": prompt_id,
        "strategy": "influence",
        "score": 1 / rank,
        "rank": rank,
        "selected": selected,
        "reason": "by hand",
    }


def _evaluation(fingerprint: str, metric: str, value: float) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "evaluation_set": "gsm",
        "metric": metric,
        "k": 4,
        "policy_id": "p0",
        "value": value,
        "standard_error": 0.05,
        "n_prompts": 2,
    }
