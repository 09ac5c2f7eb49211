"""How far a projection, mask included, distorts the gradients of a few prompts.

G = X Xᵀ and Y Yᵀ are the Gram matrices of n gradients and of their features. Suffixes: N gradients, R the
dimension of their span, C coordinates of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from pipeline_lib.influence.objective import Gradient, group_gradient
from pipeline_lib.influence.projection import Projection
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

MEMORY_BYTES = 2 << 30
"""What the gradients and their kept coordinates may take together."""

_CHUNK = 1 << 19
_RANK_TOLERANCE = 1e-8
"""Of the eigenvalues of the cosine matrix: below it, float32 features say nothing of a direction."""


@dataclass(frozen=True)
class ProjectionCheck:
    """What a projection P does to `n` gradients. A perfect one has singular values of 1 and errors of 0.

    `singular_min` and `singular_max` are those of P restricted to the gradients' span, of dimension `rank`: a
    gradient v in it has singular_min |v| <= |Pv| <= singular_max |v|, the subspace embedding of Woodruff,
    Sketching as a Tool for Numerical Linear Algebra, 2014, section 2.1. `inner_product_*` are of
    |<Pa,Pb> - <a,b>| / (|a||b|) over pairs, the ε of a Johnson-Lindenstrauss transform (ibid.), and
    `squared_length_*` of ||Pa|²/|a|² - 1| over gradients.
    """

    n: int
    rank: int
    singular_min: float
    singular_max: float
    inner_product_mean: float
    inner_product_max: float
    squared_length_mean: float
    squared_length_max: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def check_projection(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    projection: Projection,
    *,
    n: int,
    temperature: float,
    tokens_per_micro_batch: int,
) -> ProjectionCheck | None:
    """Measured on `n` prompts, or on as many as memory and signal allow; None where these are fewer than two."""
    gradients = [
        group_gradient(policy, group, temperature=temperature, tokens_per_micro_batch=tokens_per_micro_batch)
        for group in sample_groups(groups, min(n, affordable(projection)))
    ]
    gradients = [gradient for gradient in gradients if any(part.any() for part in gradient)]
    return compare(gradients, projection) if len(gradients) > 1 else None


def affordable(projection: Projection) -> int:
    """How many float32 gradients, with their kept coordinates, stay within MEMORY_BYTES."""
    return MEMORY_BYTES // (4 * (projection.n_coordinates + projection.n_kept))


def sample_groups(groups: Sequence[RolloutGroup], n: int) -> list[RolloutGroup]:
    """The first n with signal by prompt_id: a hash, so they are a random sample, the same in any order."""
    return sorted((group for group in groups if group.has_signal), key=lambda group: group.prompt_id)[:n]


def compare(gradients: Sequence[Gradient], projection: Projection) -> ProjectionCheck:
    """Of two or more gradients, none of them zero."""
    features_NK = projection.project_all(iter(gradients), len(gradients)).astype(np.float64)
    exact_NN, projected_NN = gram(gradients), features_NK @ features_NK.T
    length_N = np.sqrt(np.diag(exact_NN))
    cosine_NN, found_NN = (matrix_NN / np.outer(length_N, length_N) for matrix_NN in (exact_NN, projected_NN))
    singular_R = singular_values(cosine_NN, found_NN)
    error_NN = np.abs(found_NN - cosine_NN)
    pairs = error_NN[np.triu_indices(len(gradients), k=1)]
    lengths = np.diag(error_NN)
    return ProjectionCheck(
        n=len(gradients),
        rank=len(singular_R),
        singular_min=float(singular_R.min()),
        singular_max=float(singular_R.max()),
        inner_product_mean=float(pairs.mean()),
        inner_product_max=float(pairs.max()),
        squared_length_mean=float(lengths.mean()),
        squared_length_max=float(lengths.max()),
    )


def singular_values(exact_NN: np.ndarray, projected_NN: np.ndarray) -> np.ndarray:
    """Those of the projection restricted to the span, from the two Gram matrices alone.

    They are the roots of the eigenvalues of L⁻¹ (Y Yᵀ) L⁻ᵀ, where G = L Lᵀ: the pencil Y Yᵀ - λG (Golub and
    Van Loan, Matrix Computations, 4th edition, section 8.7). L is V sqrt(Λ) of G = V Λ Vᵀ here, without the
    eigenvalues that are zero up to rounding, so that the gradients need not be independent.
    """
    eigenvalue_N, V_NN = np.linalg.eigh(exact_NN)
    spans = eigenvalue_N > _RANK_TOLERANCE * eigenvalue_N[-1]
    inverse_NR = V_NN[:, spans] / np.sqrt(eigenvalue_N[spans])
    return np.sqrt(np.linalg.eigvalsh(inverse_NR.T @ projected_NN @ inverse_NR).clip(min=0.0))


def gram(gradients: Sequence[Gradient]) -> np.ndarray:
    """G [N, N] in float64, chunk by chunk, so that no gradient is copied whole."""
    total_NN = np.zeros((len(gradients), len(gradients)))
    for parts in zip(*gradients, strict=True):
        for chunk in zip(*(part.reshape(-1).split(_CHUNK) for part in parts), strict=True):
            chunk_NC = torch.stack(chunk).double()
            total_NN += (chunk_NC @ chunk_NC.T).cpu().numpy()
    return total_NN
