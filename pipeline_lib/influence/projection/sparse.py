"""The sparse Johnson-Lindenstrauss transform, `nonzeros` entries ±1/sqrt(nonzeros) a coordinate.

The block construction of Kane and Nelson, Sparser Johnson-Lindenstrauss Transforms, J. ACM 61(1), 2014: the
K dimensions are cut into as many blocks as there are non-zeros, and a coordinate has one entry in each, at a
random place. Each block by itself is a CountSketch and unbiased, whatever its width: so where K is not
divisible, widths differ by one. Place and sign are hashes of the coordinate's index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.projection.base import Projection
from pipeline_lib.influence.projection.hashing import hash64, shift_right, sign_of, stream_seed

CHUNK_ENTRIES = 1 << 21
"""Entries of a batch whose signs are changed at once."""


class SparseProjection(Projection):
    def __init__(self, config: ProjectedInfluence, sizes: Sequence[int], device: torch.device) -> None:
        super().__init__(config, sizes, device)
        self.nonzeros = config.nonzeros

    @property
    def kind(self) -> str:
        return f"sparse {self.dimension} with {self.nonzeros} nonzeros"

    def project(self, masked_BM: torch.Tensor) -> torch.Tensor:
        """A GPU adds up in any order, so that there the last bits may differ from one call to the next."""
        features_BK = torch.zeros(masked_BM.shape[0], self.dimension, device=self.device)
        size = max(1, CHUNK_ENTRIES // masked_BM.shape[0])
        for coordinates_M, chunk_BM in zip(self.coordinates_M.split(size), masked_BM.split(size, dim=1), strict=True):
            for block in range(self.nonzeros):
                place_M, sign_M = self.entries(coordinates_M, block)
                features_BK.index_add_(1, place_M, chunk_BM * sign_M)
        return features_BK / math.sqrt(self.nonzeros)

    def entries(self, coordinates_M: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Dimension and sign of each coordinate's entry in one block."""
        first, stop = (edge * self.dimension // self.nonzeros for edge in (block, block + 1))
        hashed_M = hash64(coordinates_M, stream_seed(self.seed, block))
        return first + (shift_right(hashed_M, 32) * (stop - first) >> 32), sign_of(hashed_M)
