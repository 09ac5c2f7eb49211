"""Ranks with one rule for ties."""

from __future__ import annotations

import numpy as np


def descending_ranks(values: np.ndarray, prompt_ids: np.ndarray) -> np.ndarray:
    """Rank of each of `values` [N], 1 for the highest; ties go by prompt_id, never by position."""
    order = np.lexsort((prompt_ids, -values))
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(1, len(values) + 1)
    return ranks
