"""Random projections of gradients: a mask, then Johnson-Lindenstrauss. CROPI, arXiv 2510.26491.

Coordinate i is the i-th entry of the parameters laid end to end. Suffixes throughout: M kept coordinates,
K dimensions of the feature, B gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.projection.base import Projection
from pipeline_lib.influence.projection.gaussian import GaussianProjection
from pipeline_lib.influence.projection.orthogonal import OrthogonalProjection
from pipeline_lib.influence.projection.sparse import SparseProjection

__all__ = ["Projection", "make_projection"]

KINDS: dict[str, type[Projection]] = {
    "gaussian": GaussianProjection,
    "sparse": SparseProjection,
    "orthogonal": OrthogonalProjection,
}


def make_projection(config: ProjectedInfluence, sizes: Sequence[int], device: torch.device) -> Projection:
    """The projection that `config` names, of parameters with `sizes` entries, in the model's order."""
    return KINDS[config.kind](config, sizes, device)
