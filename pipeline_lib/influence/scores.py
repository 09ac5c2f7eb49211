"""Influence scores of a pool of prompts. Suffixes: N prompts, V validation sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline_lib.selection.ranks import descending_ranks

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "validation_set": pa.string(),
    "dot": pa.float64(),
    "cosine": pa.float64(),
    "norm": pa.float64(),
    "rank": pa.int32(),
}
SCORE_SCHEMA = pa.schema(_COLUMNS)


@dataclass(frozen=True)
class InfluenceScores:
    """`dot` and `cosine` are [N, V] and `norm`, the length of each prompt's gradient, is [N]; all float64."""

    prompt_ids: tuple[str, ...]
    validation_sets: tuple[str, ...]
    dot: np.ndarray
    cosine: np.ndarray
    norm: np.ndarray

    def ranks(self) -> np.ndarray:
        """[N, V]: 1 is the highest cosine with that set; ties go by prompt_id."""
        ids = np.array(self.prompt_ids)
        return np.stack([descending_ranks(column_N, ids) for column_N in self.cosine.T], axis=1)

    def to_table(self) -> pa.Table:
        """One row for each prompt and validation set."""
        N, V = self.dot.shape
        return pa.table(
            {
                "prompt_id": pa.array(np.repeat(self.prompt_ids, V).tolist(), pa.string()),
                "validation_set": pa.array(list(self.validation_sets) * N, pa.string()),
                "dot": self.dot.reshape(-1),
                "cosine": self.cosine.reshape(-1),
                "norm": np.repeat(self.norm, V),
                "rank": self.ranks().reshape(-1).astype(np.int32),
            },
            schema=SCORE_SCHEMA,
        )


def scores_from_dots(
    prompt_ids: Sequence[str],
    validation_sets: Sequence[str],
    *,
    dot_NV: np.ndarray,
    norm_N: np.ndarray,
    direction_norm_V: np.ndarray,
) -> InfluenceScores:
    """Cosines from inner products and lengths; a zero gradient has cosine 0.

    Raises ValueError at the first prompt whose gradient is not finite.
    """
    for index in np.flatnonzero(~np.isfinite(norm_N + dot_NV.sum(axis=1)))[:1]:
        raise ValueError(
            f"prompt {prompt_ids[index]}: its gradient has length {norm_N[index]}, which must be finite; "
            "check the policy's weights for NaN, and that its rollouts come from a policy near to this one "
            "(a ratio π/β may have overflowed)"
        )
    lengths_NV = np.outer(norm_N, direction_norm_V)
    cosine_NV = np.divide(dot_NV, lengths_NV, out=np.zeros_like(dot_NV), where=lengths_NV > 0)
    return InfluenceScores(tuple(prompt_ids), tuple(validation_sets), dot_NV, cosine_NV, norm_N)
