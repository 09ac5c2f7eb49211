"""Rank the whole pool by its scores and keep the top α."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.ranks import descending_ranks
from pipeline_lib.selection.strategy import Scored

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "strategy": pa.string(),
    "score": pa.float64(),
    "rank": pa.int32(),
    "selected": pa.bool_(),
    "reason": pa.string(),
}
SELECTION_SCHEMA = pa.schema(_COLUMNS)


def number_kept(alpha: float, pool: int) -> int:
    """The whole number nearest to alpha · pool (a half goes to the even one), at least 1.

    Nearest, since the floor loses a prompt to float noise: 0.29 · 100 is 28.999999999999996.
    """
    return max(1, round(alpha * pool))


def top_alpha(strategy: str, alpha: float, candidates: Candidates, scored: Scored) -> pa.Table:
    """The whole pool in order of rank (score descending, ties by prompt_id), each prompt with its reason."""
    pool = len(candidates)
    kept = number_kept(alpha, pool)
    order = np.argsort(descending_ranks(scored.score, candidates.prompt_ids))
    return pa.table(
        {
            "prompt_id": pa.array(candidates.prompt_ids[order].tolist(), pa.string()),
            "strategy": pa.array([strategy] * pool, pa.string()),
            "score": scored.score[order],
            "rank": np.arange(1, pool + 1, dtype=np.int32),
            "selected": np.arange(pool) < kept,
            "reason": pa.array(_reasons(scored, order, kept), pa.string()),
        },
        schema=SELECTION_SCHEMA,
    )


def _reasons(scored: Scored, order: np.ndarray, kept: int) -> list[str]:
    pool = len(order)
    reasons = []
    for rank, index in enumerate(order.tolist(), start=1):
        without = scored.without[index] if scored.without is not None else None
        if rank <= kept:
            reasons.append(f"rank {rank} of {pool}, kept {kept}: {without or scored.why[index]}")
        else:
            reasons.append(without or f"rank {rank} of {pool}: below the {kept} kept")
    return reasons
