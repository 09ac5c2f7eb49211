"""Influence scores of a pool of prompts. Suffixes: N prompts, V validation sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline_lib.selection.ranks import ranks_by_set

_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),
    "validation_set": pa.string(),
    "dot": pa.float64(),
    "cosine": pa.float64(),
    "norm": pa.float64(),
    "rank": pa.int32(),
    "estimator": pa.string(),
}
SCORE_SCHEMA = pa.schema(_COLUMNS)


@dataclass(frozen=True)
class Products:
    """`dot_NV` is <g_i, v_j>, `norm_N` is |g_i|; float64. What is computed of some prompts of a pool."""

    prompt_ids: Sequence[str]
    dot_NV: np.ndarray
    norm_N: np.ndarray


@dataclass(frozen=True)
class InfluenceScores:
    """`dot` and `cosine` are [N, V] and `norm`, the length of each prompt's gradient, is [N]; all float64."""

    prompt_ids: tuple[str, ...]
    validation_sets: tuple[str, ...]
    dot: np.ndarray
    cosine: np.ndarray
    norm: np.ndarray

    def without(self, prompt_ids: Collection[str]) -> InfluenceScores:
        kept = np.array([i not in prompt_ids for i in self.prompt_ids], dtype=bool)
        ids = tuple(i for i, keep in zip(self.prompt_ids, kept, strict=True) if keep)
        return InfluenceScores(ids, self.validation_sets, self.dot[kept], self.cosine[kept], self.norm[kept])

    def ranks(self) -> np.ndarray:
        """[N, V]: 1 is the highest cosine with that set; ties go by prompt_id."""
        return ranks_by_set(self.cosine, np.array(self.prompt_ids))

    def to_table(
        self, estimator: Literal["exact", "projected", "cascade"] = "exact", *, ranks_after: int = 0
    ) -> pa.Table:
        """One row for each prompt and validation set; the first of these prompts has rank `ranks_after` + 1."""
        N, V = self.dot.shape
        return pa.table(
            {
                "prompt_id": pa.array(np.repeat(self.prompt_ids, V).tolist(), pa.string()),
                "validation_set": pa.array(list(self.validation_sets) * N, pa.string()),
                "dot": self.dot.reshape(-1),
                "cosine": self.cosine.reshape(-1),
                "norm": np.repeat(self.norm, V),
                "rank": (ranks_after + self.ranks().reshape(-1)).astype(np.int32),
                "estimator": pa.array([estimator] * (N * V), pa.string()),
            },
            schema=SCORE_SCHEMA,
        )


def check_finite(products: Products) -> None:
    """Raises ValueError at the first prompt whose gradient is not finite."""
    for index in np.flatnonzero(~np.isfinite(products.norm_N + products.dot_NV.sum(axis=1)))[:1]:
        raise ValueError(
            f"prompt {products.prompt_ids[index]}: its gradient has length {products.norm_N[index]}, which must be "
            "finite; check the policy's weights for NaN, and that its rollouts come from a policy near to this one "
            "(a ratio π/β may have overflowed)"
        )


def scores_from_products(
    products: Products, validation_sets: Sequence[str], direction_norm_V: Sequence[float]
) -> InfluenceScores:
    """Cosines from inner products and lengths; a zero gradient has cosine 0.

    Raises ValueError at the first prompt whose gradient is not finite.
    """
    check_finite(products)
    dot_NV, norm_N = products.dot_NV, products.norm_N
    lengths_NV = np.outer(norm_N, direction_norm_V)
    cosine_NV = np.divide(dot_NV, lengths_NV, out=np.zeros_like(dot_NV), where=lengths_NV > 0)
    return InfluenceScores(tuple(products.prompt_ids), tuple(validation_sets), dot_NV, cosine_NV, norm_N)
