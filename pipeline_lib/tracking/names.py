"""Metric names as trackers show them, by column of train_steps: TRL's own where it has one, else under rlsift/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TRL_NAMES = (
    "loss",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "grad_norm",
    "learning_rate",
    "kl",
    "entropy",
    "num_tokens",
    "step_time",
    *(f"completions/{part}_length" for part in ("mean", "min", "max")),
    *(f"completions/{part}_terminated_length" for part in ("mean", "min", "max")),
    "completions/clipped_ratio",
    *(f"clip_ratio/{part}" for part in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")),
    *(f"sampling/sampling_logp_difference/{part}" for part in ("mean", "max")),
    *(f"sampling/importance_sampling_ratio/{part}" for part in ("min", "mean", "max")),
)
"""What TRL's GRPOTrainer logs (docs/grpo_trainer.md there), as far as a column may hold it."""

ALWAYS_LOGGED = "num_tokens"
"""A metric that every step has, by which a tracker's last step is found."""

KEYS = frozenset({"fingerprint", "step"})
"""Columns of train_steps that say which row it is."""

METRICS_SUFFIX = "_metrics"
"""Ends the name of a column of JSON: sampler_metrics holds what becomes rlsift/sampler/NAME."""


# A column has _ for /, and may leave out the group: sampling_logp_difference_mean.
_BY_COLUMN = {column.replace("/", "_"): name for name in TRL_NAMES for column in (name, name.removeprefix("sampling/"))}


def metric_name(column: str) -> str:
    return _BY_COLUMN.get(column, f"rlsift/{column}")


def metrics_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a row of train_steps by name, without those that are NULL."""
    metrics: dict[str, float] = {}
    for column, value in row.items():
        if column in KEYS:
            continue
        if column.endswith(METRICS_SUFFIX):
            group = column.removesuffix(METRICS_SUFFIX)
            metrics |= {f"rlsift/{group}/{name}": v for name, v in _numbers(json.loads(value or "{}")).items()}
        else:
            metrics |= {metric_name(name): v for name, v in _numbers({column: value}).items()}
    return metrics


def evaluation_metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Rows of the table evaluations as eval/SET/avg@k and eval/SET/pass@k."""
    return {f"eval/{row['evaluation_set']}/{row['metric']}@{row['k']}": float(row["value"]) for row in rows}


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
