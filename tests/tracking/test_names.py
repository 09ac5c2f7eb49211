"""What the columns of train_steps are called where metrics are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_lib.tracking.names import TRL_NAMES, evaluation_metrics, metric_name, metrics_of
from warehouse import Warehouse

OURS = {
    "solved_all",
    "solved_some",
    "solved_none",
    "n_ungraded",
    "generated_tokens",
    "generation_rounds",
    "prompts_proposed",
    "prompts_skipped",
    "prompts_rolled_out",
    "rollouts",
    "groups_trained",
    "groups_carried",
    "rollout_time",
    "verify_time",
    "update_time",
}
"""Columns that TRL has no metric for."""


def columns(tmp_path: Path) -> dict[str, str]:
    sql = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'train_steps'"
    rows = Warehouse(tmp_path).query(sql).to_pylist()
    return {row["column_name"]: row["data_type"] for row in rows}


def test_every_column_of_train_steps_has_a_name_of_its_own(tmp_path: Path) -> None:
    numbers = {name for name, kind in columns(tmp_path).items() if kind in ("INTEGER", "BIGINT", "DOUBLE")} - {"step"}
    metrics = metrics_of(dict.fromkeys(numbers, 1))
    assert len(metrics) == len(numbers) >= 30
    assert {name for name in metrics if not name.startswith("rlsift/")} <= set(TRL_NAMES)


def test_columns_of_texts_are_the_row_s_key_or_json_of_metrics(tmp_path: Path) -> None:
    texts = {name for name, kind in columns(tmp_path).items() if kind not in ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE")}
    assert "sampler_metrics" in texts
    assert all(name == "fingerprint" or name.endswith("_metrics") for name in texts), texts


@pytest.mark.parametrize("column", sorted(OURS))
def test_what_trl_does_not_log_stands_under_rlsift(column: str, tmp_path: Path) -> None:
    assert metric_name(column) == f"rlsift/{column}"


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("reward", "reward"),
        ("reward_std", "reward_std"),
        ("frac_reward_zero_std", "frac_reward_zero_std"),
        ("completions_mean_length", "completions/mean_length"),
        ("completions_min_length", "completions/min_length"),
        ("completions_max_length", "completions/max_length"),
        ("completions_clipped_ratio", "completions/clipped_ratio"),
        ("completions_mean_terminated_length", "completions/mean_terminated_length"),
        ("kl", "kl"),
        ("entropy", "entropy"),
        ("clip_ratio_low_mean", "clip_ratio/low_mean"),
        ("clip_ratio_low_min", "clip_ratio/low_min"),
        ("clip_ratio_high_mean", "clip_ratio/high_mean"),
        ("clip_ratio_high_max", "clip_ratio/high_max"),
        ("clip_ratio_region_mean", "clip_ratio/region_mean"),
        ("sampling_logp_difference_mean", "sampling/sampling_logp_difference/mean"),
        ("sampling_sampling_logp_difference_max", "sampling/sampling_logp_difference/max"),
        ("importance_sampling_ratio_min", "sampling/importance_sampling_ratio/min"),
        ("sampling_importance_sampling_ratio_mean", "sampling/importance_sampling_ratio/mean"),
        ("importance_sampling_ratio_max", "sampling/importance_sampling_ratio/max"),
        ("num_tokens", "num_tokens"),
        ("step_time", "step_time"),
        ("grad_norm", "grad_norm"),
        ("learning_rate", "learning_rate"),
        ("loss", "loss"),
    ],
)
def test_trl_s_names_are_exact(column: str, name: str) -> None:
    assert metric_name(column) == name


def test_a_row_s_metrics_leave_out_its_key_and_what_is_null_and_unfold_the_sampler_s() -> None:
    row = {
        "fingerprint": "f",
        "step": 7,
        "reward": 0.5,
        "kl": None,
        "solved_all": 3,
        "later_column": 1.5,
        "sampler_metrics": '{"p_right": 0.5, "note": "text", "zero_variance_share": null}',
    }
    assert metrics_of(row) == {
        "reward": 0.5,
        "rlsift/solved_all": 3.0,
        "rlsift/later_column": 1.5,
        "rlsift/sampler/p_right": 0.5,
    }


def test_evaluations_are_named_by_set_metric_and_k() -> None:
    rows = [
        {"evaluation_set": "targeted", "metric": "avg", "k": 8, "value": 0.25},
        {"evaluation_set": "targeted", "metric": "pass", "k": 1, "value": 0.25},
        {"evaluation_set": "other", "metric": "pass", "k": 8, "value": 1.0},
    ]
    assert evaluation_metrics(rows) == {
        "eval/targeted/avg@8": 0.25,
        "eval/targeted/pass@1": 0.25,
        "eval/other/pass@8": 1.0,
    }
