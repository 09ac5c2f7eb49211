"""Ranks with one rule for ties."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def descending_order(values: np.ndarray, prompt_ids: np.ndarray) -> np.ndarray:
    """Indices of `values` [N] from the highest to the lowest; ties go by prompt_id, never by position."""
    keyed = pa.table({"value": values, "prompt_id": pa.array(prompt_ids, pa.string())})
    order = pc.sort_indices(keyed, [("value", "descending"), ("prompt_id", "ascending")])
    return order.to_numpy()


def descending_ranks(values: np.ndarray, prompt_ids: np.ndarray) -> np.ndarray:
    """Rank of each of `values` [N], 1 for the highest; ties as in `descending_order`."""
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[descending_order(values, prompt_ids)] = np.arange(1, len(values) + 1)
    return ranks


def ranks_by_set(values_NV: np.ndarray, prompt_ids: np.ndarray) -> np.ndarray:
    """[N, V] ranks of the N prompts on each of V sets."""
    return np.stack([descending_ranks(values_N, prompt_ids) for values_N in values_NV.T], axis=1)
