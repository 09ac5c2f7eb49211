"""What every projection is: a random mask over the coordinates, then a linear map to few dimensions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.objective import Gradient
from pipeline_lib.influence.projection.hashing import hash64, shift_right

BATCH_ENTRIES = 1 << 30
"""Kept coordinates held at once, 4 GiB in float32: the more prompts share a block, the less is drawn."""

_CHUNK = 1 << 24


class Projection(ABC):
    """`sizes` are the entries of each parameter, in the model's order.

    Inner products of features are unbiased estimates of those of gradients: kept coordinates are scaled by
    1/sqrt(keep_ratio), and the map of each kind preserves inner products in the mean over its draws.
    """

    def __init__(self, config: ProjectedInfluence, sizes: Sequence[int], device: torch.device) -> None:
        self.keep_ratio, self.dimension, self.seed = config.keep_ratio, config.dimension, config.seed
        self.device = device
        self.scale = 1 / math.sqrt(self.keep_ratio)
        *self.starts, self.n_coordinates = accumulate(sizes, initial=0)
        kept = [
            kept_coordinates(start, start + size, keep_ratio=self.keep_ratio, seed=self.seed, device=device)
            for start, size in zip(self.starts, sizes, strict=True)
        ]
        self.kept_counts = [len(kept_M) for kept_M in kept]
        self.coordinates_M = torch.cat(kept)
        self.n_kept = len(self.coordinates_M)
        if self.n_kept == 0:
            raise ValueError(
                f"keep_ratio={self.keep_ratio} keeps none of {self.n_coordinates} coordinates; "
                "raise influence.keep_ratio"
            )

    @property
    @abstractmethod
    def kind(self) -> str:
        """What the map is, as `name` tells it."""

    @property
    def name(self) -> str:
        """Features can be compared only where this is the same."""
        return f"mask {self.keep_ratio} then {self.kind} of {self.n_coordinates} coordinates, seed {self.seed}"

    def mask(self, gradient: Gradient) -> torch.Tensor:
        """The kept coordinates [M] of one gradient, scaled."""
        kept = self.coordinates_M.split(self.kept_counts)
        parts = [
            part.reshape(-1)[kept_M - start] for part, kept_M, start in zip(gradient, kept, self.starts, strict=True)
        ]
        return torch.cat(parts) * self.scale

    @abstractmethod
    def project(self, masked_BM: torch.Tensor) -> torch.Tensor:
        """Features [B, K] of masked gradients; the more at once, the less is drawn."""

    def project_all(self, gradients: Iterator[Gradient], n: int) -> np.ndarray:
        """The features [n, K] of n gradients, taken one by one and projected in batches."""
        size = min(n, max(1, BATCH_ENTRIES // self.n_kept))
        masked_BM = torch.empty(size, self.n_kept, device=self.device)
        features = []
        for start in range(0, n, size):
            rows = min(size, n - start)
            for row in range(rows):
                masked_BM[row] = self.mask(next(gradients))
            features.append(self.project(masked_BM[:rows]).cpu().numpy())
        return np.concatenate(features)


def kept_coordinates(start: int, stop: int, *, keep_ratio: float, seed: int, device: torch.device) -> torch.Tensor:
    """Which of the coordinates start..stop-1 the mask keeps: those whose hash falls below keep_ratio."""
    threshold = round(keep_ratio * 2**53)
    kept = []
    for chunk in range(start, stop, _CHUNK):
        index = torch.arange(chunk, min(chunk + _CHUNK, stop), dtype=torch.int64, device=device)
        kept.append(index[shift_right(hash64(index, seed), 11) < threshold])
    return torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64, device=device)
