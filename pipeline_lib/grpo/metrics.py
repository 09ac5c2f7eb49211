"""The row of a training step, named as TRL names its metrics, with _ for /."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pipeline_lib.grpo.fill import StepBatch
from pipeline_lib.grpo.update import UpdateMetrics


def step_row(batch: StepBatch, update: UpdateMetrics | None) -> dict[str, Any]:
    """Of what was rolled out, and of the update; without one where it was not applied."""
    groups = batch.rolled_out
    trajectories = [t for g in groups for t in g.trajectories]
    lengths = [len(t.completion_token_ids) for t in trajectories]
    terminated = [len(t.completion_token_ids) for t in trajectories if t.finish_reason == "stop"]
    statuses = Counter(t.verifier_status for t in trajectories)
    empty = {field.name: None for field in dataclasses.fields(UpdateMetrics)} | {
        "num_tokens": 0,
        "n_masked": 0,
        "logprob_time": 0.0,
    }
    return (empty if update is None else dataclasses.asdict(update)) | {
        "reward": _mean(mean for g in groups if (mean := _mean(g.rewards)) is not None),
        "reward_std": _mean(statistics.stdev(g.rewards) for g in groups if len(g.rewards) > 1),
        "frac_reward_zero_std": _mean(float(not g.has_signal) for g in groups),
        "solved_all": sum(g.outcome == "all_right" for g in groups),
        "solved_some": sum(g.outcome == "mixed" for g in groups),
        "solved_none": sum(g.outcome == "all_wrong" for g in groups),
        "n_ungraded": sum(t.reward is None for t in trajectories),
        "n_timeout": statuses["timeout"],
        "n_error": statuses["error"],
        "n_unparseable": statuses["unparseable_answer"],
        "completions_mean_length": _mean(lengths),
        "completions_min_length": min(lengths, default=None),
        "completions_max_length": max(lengths, default=None),
        "completions_clipped_ratio": _mean(float(t.finish_reason == "length") for t in trajectories),
        "completions_mean_terminated_length": _mean(terminated),
        "completions_min_terminated_length": min(terminated, default=None),
        "completions_max_terminated_length": max(terminated, default=None),
        "generated_tokens": batch.generated_tokens,
        "generation_rounds": batch.rounds,
        "prompts_proposed": len(batch.decisions),
        "prompts_skipped": sum(not d.keep for d in batch.decisions),
        "prompts_rolled_out": len(groups),
        "rollouts": len(trajectories),
        "groups_trained": len(batch.groups),
        "groups_carried": len(batch.carried),
        "rollout_time": batch.generate_seconds,
        "verify_time": batch.verify_seconds,
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values else None
