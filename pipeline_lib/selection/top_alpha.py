"""Rank the whole pool by its scores and keep the top α."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.ranks import descending_order
from pipeline_lib.selection.strategy import Scored, joined

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "strategy": pa.string(),
    "score": pa.float64(),
    "rank": pa.int32(),
    "selected": pa.bool_(),
    "pass_rate": pa.float64(),
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
    order = descending_order(scored.score, candidates.prompt_ids)
    return pa.table(
        {
            "prompt_id": pa.array(candidates.prompt_ids, pa.string()).take(order),
            "strategy": pa.repeat(strategy, pool),
            "score": scored.score[order],
            "rank": np.arange(1, pool + 1, dtype=np.int32),
            "selected": np.arange(pool) < kept,
            "pass_rate": pa.array(candidates.pass_rate[order], pa.float64(), from_pandas=True),
            "reason": _reasons(scored, order, kept),
        },
        schema=SELECTION_SCHEMA,
    )


def _reasons(scored: Scored, order: np.ndarray, kept: int) -> pa.Array:
    pool = len(order)
    rank = pa.array(np.arange(1, pool + 1)).cast(pa.string())
    without = pa.nulls(pool, pa.string()) if scored.without is None else scored.without.take(order)
    why = pc.coalesce(without[:kept], scored.why.take(order[:kept]))
    below = joined("rank ", rank[kept:], f" of {pool}: below the {kept} kept")
    return pa.concat_arrays(
        [joined("rank ", rank[:kept], f" of {pool}, kept {kept}: ", why), pc.coalesce(without[kept:], below)]
    )
