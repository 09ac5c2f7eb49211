"""Influence out of stored per-token derivatives, under any surrogate objective, without the policy.

A surrogate is (1/K) Σ_k J_k; its gradient along v is (1/K) Σ_k Σ_t w_kt l'_kt, and the token weights w are all that
tells one surrogate from another: its ratio, its clipping, its length rule. Suffix: T completion tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pipeline_lib.advantages import graded_advantages
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout.parquet import groups_from_table

TokenWeights = Callable[[np.ndarray, float], np.ndarray]
"""From log π/β of each token and the advantage A of the trajectory to ∂J/∂(log π) of each token."""

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "validation_set": pa.string(),
    "dot": pa.float64(),
}
DOT_SCHEMA = pa.schema(_COLUMNS)


def token_ratio(log_ratio_T: np.ndarray, advantage: float) -> np.ndarray:
    """Of J = A/|τ| Σ_t ρ_t, as published: CROPI, arXiv 2510.26491."""
    return advantage / len(log_ratio_T) * np.exp(log_ratio_T)


def clipped_token_ratio(
    log_ratio_T: np.ndarray, advantage: float, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> np.ndarray:
    """Of J = 1/|τ| Σ_t min(ρ_t A, clip(ρ_t, 1-ε_low, 1+ε_high) A): 0 where the clipped branch is the smaller one.

    PPO, arXiv 1707.06347.
    """
    ratio_T = np.exp(log_ratio_T)
    clipped_T = ratio_T > 1 + clip_high if advantage > 0 else ratio_T < 1 - clip_low
    return np.where(clipped_T, 0.0, token_ratio(log_ratio_T, advantage))


def sequence_ratio(log_ratio_T: np.ndarray, advantage: float) -> np.ndarray:
    """Of J = A s, s = exp(mean_t log ρ_t), unclipped: GSPO, arXiv 2507.18071."""
    return np.full(len(log_ratio_T), advantage * np.exp(log_ratio_T.mean()) / len(log_ratio_T))


def dots_of_tokens(rollouts: pa.Table, per_token: pa.Table, weights: TokenWeights = token_ratio) -> pa.Table:
    """<g_i, v_j> for each group of the rollouts and validation set of the derivatives, in float64.

    Raises ValueError for a trajectory with an advantage whose derivatives are missing.
    """
    tokens = _tokens(per_token)

    def dot(group: RolloutGroup, validation_set: str) -> float:
        pairs = graded_advantages(group)
        total = 0.0
        for trajectory, advantage in pairs:
            if advantage == 0.0 or not trajectory.completion_token_ids:
                continue
            key = (group.prompt_id, trajectory.sample_index, validation_set)
            if key not in tokens:
                raise ValueError(
                    f"prompt {group.prompt_id}, sample {trajectory.sample_index}: no derivatives along validation "
                    f"set {validation_set!r}; score it again with influence.per_token: true"
                )
            derivatives_T, logprobs_T = tokens[key]
            weights_T = weights(logprobs_T - np.array(trajectory.behaviour_logprobs), advantage)
            total += float(weights_T @ derivatives_T)
        return total / max(len(pairs), 1)

    rows = [
        {"prompt_id": group.prompt_id, "validation_set": validation_set, "dot": dot(group, validation_set)}
        for group in groups_from_table(rollouts)
        for validation_set in per_token["validation_set"].unique().to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=DOT_SCHEMA)


def _tokens(per_token: pa.Table) -> dict[tuple[str, int, str], tuple[np.ndarray, np.ndarray]]:
    """Derivatives and log-probs of each prompt, sample and validation set."""
    keys = zip(*(per_token[name].to_pylist() for name in ("prompt_id", "sample_index", "validation_set")), strict=True)
    values = ([_float64(row) for row in per_token[name]] for name in ("derivatives", "logprobs"))
    return dict(zip(keys, zip(*values, strict=True), strict=True))


def _float64(scalar: pa.ListScalar) -> np.ndarray:
    return scalar.values.to_numpy().astype(np.float64)
