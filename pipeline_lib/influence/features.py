"""Projected gradients as rows of Parquet, which SQL scores without the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Features:
    """`values_NK` float32; features can be compared only where `projection` is the same."""

    ids: tuple[str, ...]
    values_NK: np.ndarray
    projection: str


def feature_schema(key: Literal["prompt_id", "validation_set"], dimension: int) -> pa.Schema:
    """`feature` times `scale` is the projected gradient.

    A gradient's entries may be 1e-6 and less, where float16 has few bits left and then none. So each row is
    divided by its root mean square, the float32 `scale`: its entries are about 1 and never above
    sqrt(dimension). A zero gradient has scale 0.
    """
    columns: dict[str, pa.DataType] = {
        key: pa.string(),
        "projection": pa.string(),
        "scale": pa.float32(),
        "feature": pa.list_(pa.float16(), dimension),
    }
    return pa.schema(columns)


def feature_table(features: Features, key: Literal["prompt_id", "validation_set"]) -> pa.Table:
    N, K = features.values_NK.shape
    scale_N = np.sqrt(np.square(features.values_NK, dtype=np.float64).mean(axis=1))
    unit_NK = features.values_NK / np.where(scale_N > 0, scale_N, 1.0)[:, None]
    return pa.table(
        {
            key: pa.array(features.ids, pa.string()),
            "projection": pa.array([features.projection] * N, pa.string()),
            "scale": scale_N.astype(np.float32),
            "feature": pa.FixedSizeListArray.from_arrays(pa.array(unit_NK.astype(np.float16).reshape(-1)), K),
        },
        schema=feature_schema(key, K),
    )
