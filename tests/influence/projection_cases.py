"""Projections over parameters of given sizes, their matrix written out, and their hash in unbounded whole numbers."""

from __future__ import annotations

from typing import Any

import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.objective import Gradient
from pipeline_lib.influence.projection import Projection, make_projection

CPU = torch.device("cpu")
KINDS = ["gaussian", "sparse", "orthogonal"]


def projection(
    sizes: list[int], kind: Any = "gaussian", *, keep_ratio: float = 0.5, dimension: int = 8, seed: int = 0, **more: int
) -> Projection:
    config = ProjectedInfluence(kind=kind, keep_ratio=keep_ratio, dimension=dimension, seed=seed, **more)
    return make_projection(config, sizes, CPU)


def random_gradient(sizes: list[int], seed: int) -> Gradient:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in sizes]


def map_of(p: Projection) -> torch.Tensor:
    """[K, M], one kept coordinate after the other."""
    return p.project(torch.eye(p.n_kept)).T


def matrix_of(p: Projection, sizes: list[int]) -> torch.Tensor:
    """[K, coordinates], mask included."""
    units = torch.eye(sum(sizes))
    return p.project(torch.stack([p.mask(list(unit.split(sizes))) for unit in units])).T


def hash_by_hand(index: int, seed: int) -> int:
    """SplitMix64, unsigned."""

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    return mix((mix((seed + 1) * golden % 2**64) + (index + 1) * golden) % 2**64)
