"""How stable a ranking is: rankings by the even and by the odd trajectories of each prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Stability:
    """`spearman` is between the scores of the two halves, nan where one of them is constant; `reliability`,
    2r / (1 + r), is what it predicts for two sets of all K trajectories (Spearman 1910, Brown 1910)."""

    n_prompts: int
    spearman: float

    @property
    def reliability(self) -> float:
        return 2 * self.spearman / (1 + self.spearman) if self.spearman > -1 else float("nan")


def split_half(cosine_2NV: np.ndarray) -> list[Stability]:
    """Of each of V validation sets, from the cosines of N prompts by either half of their trajectories."""
    _, N, V = cosine_2NV.shape
    return [Stability(N, spearman(cosine_2NV[0, :, j], cosine_2NV[1, :, j])) for j in range(V)]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of the ranks, ties at their mean rank; nan where either is constant."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(_mean_ranks(a), _mean_ranks(b))[0, 1])


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[index]
    return ranks
