"""The subsampled randomised Hadamard transform: random signs, Hadamard transform, K of its rows.

Ailon and Chazelle 2006; as here, Tropp, Improved Analysis of the Subsampled Randomized Hadamard Transform,
arXiv 1011.1595. The M kept coordinates are padded with zeros to a power of two P; over these P coordinates
the rows are exactly orthogonal, each of squared length P/K, and with K = P nothing is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.projection.base import Projection
from pipeline_lib.influence.projection.hadamard import hadamard_transform
from pipeline_lib.influence.projection.hashing import hash64, sign_of, stream_seed

CHUNK = 1 << 20
"""Coordinates that are hashed at once."""


class OrthogonalProjection(Projection):
    def __init__(self, config: ProjectedInfluence, sizes: Sequence[int], device: torch.device) -> None:
        super().__init__(config, sizes, device)
        self.order = 1 << (self.n_kept - 1).bit_length()
        if self.dimension > self.order:
            raise ValueError(
                f"dimension={self.dimension} exceeds {self.order}, the {self.n_kept} kept coordinates padded to a "
                "power of two, of which kind: orthogonal takes each at most once; lower influence.dimension, "
                "raise influence.keep_ratio, or set influence.kind to gaussian or sparse"
            )
        self.rows_K = distinct_rows(self.order, self.dimension, stream_seed(self.seed, 1)).to(device)

    @property
    def kind(self) -> str:
        return f"orthogonal {self.dimension}"

    def project(self, masked_BM: torch.Tensor) -> torch.Tensor:
        """One gradient at a time: its transform has P entries, of which K are kept."""
        sign_M = self._signs()
        features_BK = torch.empty(masked_BM.shape[0], self.dimension, device=self.device)
        for features_K, masked_M in zip(features_BK, masked_BM, strict=True):
            padded_P = torch.zeros(self.order, device=self.device)
            torch.mul(masked_M, sign_M, out=padded_P[: self.n_kept])
            features_K.copy_(hadamard_transform(padded_P)[self.rows_K])
        return features_BK / math.sqrt(self.dimension)

    def _signs(self) -> torch.Tensor:
        seed = stream_seed(self.seed, 0)
        return torch.cat([sign_of(hash64(coordinates_M, seed)) for coordinates_M in self.coordinates_M.split(CHUNK)])


def distinct_rows(order: int, count: int, seed: int) -> torch.Tensor:
    """`count` of `order` (a power of two) rows, without replacement: the first distinct ones of a hashed sequence."""
    found: dict[int, None] = {}
    start = 0
    while len(found) < count:
        hashed = hash64(torch.arange(start, start + count), seed) & (order - 1)
        found.update(dict.fromkeys(hashed.tolist()))
        start += count
    return torch.tensor(list(found)[:count])
