"""Rows for the warehouse's tests: what a test does not care about has a default."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows))


def batch(name: str, size: int = 20) -> dict[str, pa.Table]:
    """`size` rows in each of two tables, to be there together or not at all."""
    shards = [
        {"fingerprint": name, "shard_index": i, "path": "p", "n_rows": 1, "n_bytes": 1, "sha256": "0"}
        for i in range(size)
    ]
    steps = [{"run_id": name, "stage": i, "name": "train", "fingerprint": name} for i in range(size)]
    return {"shards": table(*shards), "run_steps": table(*steps)}


def prompt(prompt_id: str, **extra: Any) -> dict[str, Any]:
    empty = {"messages": "[]", "gold": "1", "verifier": "exact", "verifier_args": "{}"}
    return {"prompt_id": prompt_id, "data_source": "sums", "extra": json.dumps(extra), **empty}


def run(run_id: str, **values: Any) -> dict[str, Any]:
    row = {"run_id": run_id, "config": "{}", "config_hash": "h", "stages": 1, "status": "completed"}
    return {
        **row,
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "updated_at": datetime(2026, 1, 1, tzinfo=UTC),
        **values,
    }


def step(fingerprint: str, started: datetime, finished: datetime | None = None) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "name": "train",
        "status": "completed" if finished else "running",
        "settings": "{}",
        "inputs": "[]",
        "attempts": 1,
        "started_at": started,
        "finished_at": finished,
    }


def stats(
    fingerprint: str, prompt_id: str, n_correct: int, *, step: int = 0, phase: str = "offline", n: int = 4
) -> dict[str, Any]:
    outcome = {0: "all_wrong", n: "all_right"}.get(n_correct, "mixed") if n else "ungraded"
    return {
        "fingerprint": fingerprint,
        "prompt_id": prompt_id,
        "step": step,
        "phase": phase,
        "policy_id": "p0",
        "n": n,
        "n_correct": n_correct,
        "n_ungraded": 4 - n,
        "outcome": outcome,
        "has_signal": outcome == "mixed",
        "n_truncated": 0,
        "mean_length": 10.0,
        "max_length": 12,
    }


def train_step(fingerprint: str, step: int, **values: Any) -> dict[str, Any]:
    zeros = (
        "loss solved_all solved_some solved_none n_ungraded grad_norm learning_rate num_tokens "
        "generated_tokens generation_rounds prompts_proposed prompts_skipped prompts_rolled_out rollouts "
        "groups_trained groups_carried step_time rollout_time verify_time update_time"
    )
    row = dict.fromkeys(zeros.split(), 0)
    return {"fingerprint": fingerprint, "step": step, "sampler_metrics": "{}", **row, **values}


def evaluation(fingerprint: str, metric: str, value: float) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "evaluation_set": "gsm",
        "metric": metric,
        "k": 4,
        "policy_id": "p0",
        "value": value,
        "n_prompts": 3,
    }


def selection(
    fingerprint: str, prompt_id: str, rank: int, *, selected: bool, pass_rate: float | None = None
) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "prompt_id": prompt_id,
        "strategy": "influence",
        "score": 1 / rank,
        "rank": rank,
        "selected": selected,
        "reason": "top_alpha" if selected else "below_alpha",
        "pass_rate": pass_rate,
    }


def fact(fingerprint: str, subject: str, metric: str, value: float | None, n: int) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "subject": subject, "metric": metric, "value": value, "n": n}


def similarity(fingerprint: str, prompt_id: str, cosine: float) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "prompt_id": prompt_id, "validation_set": "gsm", "cosine": cosine}


def decision(fingerprint: str, step: int, prompt_id: str, *, keep: bool, reason: str) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "step": step,
        "position": 0,
        "prompt_id": prompt_id,
        "epoch": 1,
        "keep": keep,
        "keep_probability": 0.5,
        "reason": reason,
    }


def score(fingerprint: str, prompt_id: str, cosine: float) -> dict[str, Any]:
    """Without a gradient where the cosine is 0."""
    norm = float(cosine != 0)
    row = {"fingerprint": fingerprint, "prompt_id": prompt_id, "validation_set": "gsm", "estimator": "exact", "rank": 1}
    return {**row, "dot": float(cosine), "cosine": float(cosine), "norm": norm}


def source(fingerprint: str, prompt_id: str, row_index: int) -> dict[str, Any]:
    row = {"fingerprint": fingerprint, "split": "train", "set_name": "train", "source": "pool.jsonl"}
    return {**row, "row_index": row_index, "prompt_id": prompt_id}
