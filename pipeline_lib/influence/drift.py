"""How far the policy has moved from the one whose rollouts it is scored with.

Suffixes: B trajectories, M completion tokens of a pack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import torch

from pipeline_lib.config import InfluenceBase
from pipeline_lib.influence.objective import token_log_ratios, weighted_trajectories
from pipeline_lib.influence.pack import Pack, attention_share, make_pack, packs, rows_of
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "split": pa.string(),
    "n_tokens": pa.int64(),
    "kl": pa.float64(),
    "ess": pa.float64(),
    "sequence_ess": pa.float64(),
    "stale": pa.bool_(),
}
DRIFT_SCHEMA = pa.schema(_COLUMNS)


@dataclass(frozen=True)
class Drift:
    """Of one prompt, from the trajectories that weigh in its gradient. ρ = π/β of a token.

    `kl` is the mean over tokens of ρ - 1 - log ρ, an estimate of KL(β ‖ π) that is never negative (k3 of
    Schulman, "Approximating KL Divergence", 2020). `ess` = (Σρ)² / (n Σρ²) is the effective share of the n
    tokens (Kong 1992), `sequence_ess` the same of the trajectories, each weighted by the product of its ρ.
    """

    n_tokens: int
    kl: float
    ess: float
    sequence_ess: float

    def is_stale(self, config: InfluenceBase) -> bool:
        return self.kl > config.max_kl or self.ess < config.min_ess


class DriftMeter:
    """Takes up what each pack shows, trajectory by trajectory; one that comes again counts once."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[int, list[float]]] = defaultdict(dict)

    def observe(self, pack: Pack, log_ratio_M: torch.Tensor) -> None:
        """`log_ratio_M` is log π/β of the pack's completion tokens."""
        log_ratio_M = log_ratio_M.double()
        ratio_M = log_ratio_M.exp()
        terms_M5 = torch.stack(
            [torch.ones_like(ratio_M), ratio_M - 1 - log_ratio_M, ratio_M, ratio_M.square(), log_ratio_M], dim=1
        )
        sums_B5 = torch.zeros(len(pack.trajectories), 5, dtype=torch.float64, device=ratio_M.device)
        sums_B5.index_add_(0, pack.trajectory_M, terms_M5)
        for trajectory, sums_5 in zip(pack.trajectories, sums_B5.tolist(), strict=True):
            self._sums[trajectory.prompt_id][trajectory.sample_index] = sums_5

    def drifts(self) -> dict[str, Drift]:
        """By prompt id."""
        return {prompt_id: _drift(np.array(list(sums.values()))) for prompt_id, sums in self._sums.items()}


def _drift(sums_B5: np.ndarray) -> Drift:
    n, kl, ratios, squares, _ = sums_B5.sum(axis=0).tolist()
    log_weights_B = sums_B5[:, 4]
    weights_B = np.exp(log_weights_B - log_weights_B.max())
    return Drift(
        n_tokens=int(n),
        kl=kl / n,
        ess=ratios**2 / (n * squares),
        sequence_ess=float(weights_B.sum() ** 2 / (len(weights_B) * np.square(weights_B).sum())),
    )


def measure_drift(
    policy: Policy, groups: Sequence[RolloutGroup], *, temperature: float, tokens_per_micro_batch: int
) -> dict[str, Drift]:
    """By prompt id, of the groups with signal, from forward passes alone."""
    meter = DriftMeter()
    share = attention_share(policy)
    rows_N = [rows_of(weighted_trajectories(group), share, tokens_per_micro_batch) for group in groups]
    with torch.no_grad():
        for members in packs(rows_N, tokens_per_micro_batch):
            pack = make_pack([rows_N[i] for i in members], policy)
            meter.observe(pack, token_log_ratios(policy, pack, temperature=temperature))
    return meter.drifts()


def drift_table(drifts: Mapping[str, Drift], split: Literal["train", "validation"], config: InfluenceBase) -> pa.Table:
    rows = [
        {"prompt_id": prompt_id, "split": split, **vars(drift), "stale": drift.is_stale(config)}
        for prompt_id, drift in drifts.items()
    ]
    return pa.Table.from_pylist(rows, schema=DRIFT_SCHEMA)
