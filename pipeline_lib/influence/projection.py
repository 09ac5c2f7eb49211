"""Random projection of gradients, a mask and then Johnson-Lindenstrauss. CROPI, arXiv 2510.26491.

Coordinate i is the i-th entry of the parameters laid end to end; what is drawn for it depends on the seed and
on i alone. Suffixes: M kept coordinates, K dimensions of the feature, B gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch

from pipeline_lib.influence.objective import Gradient

BLOCK = 1 << 15
"""Coordinates of one block of the Gaussian matrix, of which only one exists at a time."""

_CHUNK = 1 << 24
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


class Projection:
    """`sizes` are the entries of each parameter, in the model's order.

    Inner products of features are unbiased estimates of those of gradients: kept coordinates are scaled by
    1/sqrt(keep_ratio), the Gaussian matrix by 1/sqrt(dimension).
    """

    def __init__(
        self, sizes: Sequence[int], *, keep_ratio: float, dimension: int, seed: int, device: torch.device
    ) -> None:
        self.dimension = dimension
        self.first_block_seed = int(_hash(torch.tensor(-1), seed)) % 2**32
        self.device = device
        self.scale = 1 / math.sqrt(keep_ratio)
        starts = list(accumulate(sizes, initial=0))
        kept = [
            kept_coordinates(start, start + size, keep_ratio=keep_ratio, seed=seed, device=device)
            for start, size in zip(starts, sizes, strict=False)
        ]
        self.local_M = [kept_M - start for kept_M, start in zip(kept, starts, strict=False)]
        self.n_kept = sum(len(kept_M) for kept_M in kept)
        if self.n_kept == 0:
            raise ValueError(
                f"keep_ratio={keep_ratio} keeps none of {starts[-1]} coordinates; raise influence.keep_ratio"
            )
        blocks, counts = torch.unique_consecutive(torch.cat(kept) // BLOCK, return_counts=True)
        self.blocks = list(zip(blocks.tolist(), counts.tolist(), strict=True))
        self.name = (
            f"mask {keep_ratio} then gaussian {dimension} of {starts[-1]} coordinates, seed {seed}, "
            f"{_generator_name(device)}"
        )

    def mask(self, gradient: Gradient) -> torch.Tensor:
        """The kept coordinates [M] of one gradient, scaled."""
        parts = [part.reshape(-1)[local] for part, local in zip(gradient, self.local_M, strict=True)]
        return torch.cat(parts) * self.scale

    def project(self, masked_BM: torch.Tensor) -> torch.Tensor:
        """Features [B, K]; each block of the Gaussian matrix is drawn once for the whole batch."""
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


def kept_coordinates(start: int, stop: int, *, keep_ratio: float, seed: int, device: torch.device) -> torch.Tensor:
    """Which of the coordinates start..stop-1 the mask keeps: those whose hash falls below keep_ratio."""
    threshold = round(keep_ratio * 2**53)
    kept = []
    for chunk in range(start, stop, _CHUNK):
        index = torch.arange(chunk, min(chunk + _CHUNK, stop), dtype=torch.int64, device=device)
        kept.append(index[_shift_right(_hash(index, seed), 11) < threshold])
    return torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64, device=device)


def _hash(index: torch.Tensor, seed: int) -> torch.Tensor:
    """64 bits for each index, as int64: the index-th output of SplitMix64 started at a mix of the seed."""
    start = _mix(torch.tensor(_signed(seed + 1), device=index.device) * _signed(_GOLDEN))
    return _mix(start + (index + 1) * _signed(_GOLDEN))


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), whose products wrap around."""
    x = (x ^ _shift_right(x, 30)) * _signed(_MIX_1)
    x = (x ^ _shift_right(x, 27)) * _signed(_MIX_2)
    return x ^ _shift_right(x, 31)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts in zeros, where >> of an int64 repeats the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """The int64 with the same 64 bits."""
    return (x + 2**63) % 2**64 - 2**63


def _generator_name(device: torch.device) -> str:
    """torch promises the same random numbers only for one release and one kind of device."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"torch {torch.__version__} on {kind}"
