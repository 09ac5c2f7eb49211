"""The dense projection: independent normal entries of variance 1/K, drawn anew for every batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.projection.base import Projection
from pipeline_lib.influence.projection.hashing import stream_seed

BLOCK = 1 << 15
"""Coordinates of one block of the Gaussian matrix, of which only one exists at a time."""


class GaussianProjection(Projection):
    def __init__(self, config: ProjectedInfluence, sizes: Sequence[int], device: torch.device) -> None:
        super().__init__(config, sizes, device)
        self.first_block_seed = stream_seed(self.seed, 0) % 2**32
        blocks, counts = torch.unique_consecutive(self.coordinates_M // BLOCK, return_counts=True)
        self.blocks = list(zip(blocks.tolist(), counts.tolist(), strict=True))

    @property
    def kind(self) -> str:
        return f"gaussian {self.dimension}"

    @property
    def name(self) -> str:
        return f"{super().name}, {_generator_name(self.device)}"

    def project(self, masked_BM: torch.Tensor) -> torch.Tensor:
        """Each block of the matrix is drawn once for the whole batch."""
        features_BK = torch.zeros(masked_BM.shape[0], self.dimension, device=self.device)
        start = 0
        for gaussian_MK in self._gaussian_blocks():
            stop = start + gaussian_MK.shape[0]
            features_BK += masked_BM[:, start:stop] @ gaussian_MK
            start = stop
        return features_BK / math.sqrt(self.dimension)

    def block_seed(self, block: int) -> int:
        """Distinct for all blocks: torch's CPU generator heeds 32 bits of its seed, in which the hashes of
        some ten thousand blocks would collide."""
        return (self.first_block_seed + block) % 2**32

    def _gaussian_blocks(self) -> Iterator[torch.Tensor]:
        generator = torch.Generator(self.device)
        for block, count in self.blocks:
            generator.manual_seed(self.block_seed(block))
            yield torch.randn(count, self.dimension, generator=generator, device=self.device)


def _generator_name(device: torch.device) -> str:
    """torch promises the same random numbers only for one release and one kind of device."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"torch {torch.__version__} on {kind}"
