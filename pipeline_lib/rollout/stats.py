"""What one policy made of each prompt: the rows of the warehouse's rollout_stats table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from pipeline_lib.records import RolloutGroup

Phase = Literal["offline", "train", "evaluation"]

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "step": pa.int32(),
    "phase": pa.string(),
    "policy_id": pa.string(),
    "n": pa.int32(),
    "n_correct": pa.int32(),
    "n_ungraded": pa.int32(),
    "reward_mean": pa.float64(),
    "reward_std": pa.float64(),
    "outcome": pa.string(),
    "has_signal": pa.bool_(),
    "n_truncated": pa.int32(),
    "mean_length": pa.float64(),
    "max_length": pa.int32(),
}
ROLLOUT_STATS_SCHEMA = pa.schema(_COLUMNS)
"""The table's columns but `fingerprint`, which the step that writes them knows."""


def rollout_stats(groups: Sequence[RolloutGroup], *, step: int, phase: Phase, policy_id: str) -> pa.Table:
    """One row a group. Mean and standard deviation (n - 1) of the reward are null where undefined."""
    rows = [{"step": step, "phase": phase, "policy_id": policy_id, **_measure(group)} for group in groups]
    return pa.Table.from_pylist(rows, schema=ROLLOUT_STATS_SCHEMA)


def _measure(group: RolloutGroup) -> dict[str, Any]:
    rewards = group.rewards
    lengths = [len(t.completion_token_ids) for t in group.trajectories]
    return {
        "prompt_id": group.prompt_id,
        "n": len(rewards),
        "n_correct": group.n_correct,
        "n_ungraded": len(group.trajectories) - len(rewards),
        "reward_mean": statistics.fmean(rewards) if rewards else None,
        "reward_std": statistics.stdev(rewards) if len(rewards) > 1 else None,
        "outcome": group.outcome,
        "has_signal": group.has_signal,
        "n_truncated": sum(t.finish_reason == "length" for t in group.trajectories),
        "mean_length": statistics.fmean(lengths),
        "max_length": max(lengths),
    }
