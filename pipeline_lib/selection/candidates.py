"""What is known of the pool that a stage selects from. Suffixes: N prompts, V validation sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Candidates:
    """One entry for each prompt of the pool, in any order.

    `pass_rate` and `n` are the latest known (nan and 0 when never graded), `tokens` the mean length of the latest
    completions; `outcome` and `has_signal` are those of the rollouts that it was scored with. `rank_NV`, by influence
    on each validation set, 1 the highest, is None until influence has been scored, `relevance_NV` (0..1) until the pool
    has been compared with the sets.
    """

    prompt_ids: np.ndarray
    pass_rate: np.ndarray
    n: np.ndarray
    tokens: np.ndarray
    outcome: np.ndarray
    has_signal: np.ndarray
    rank_NV: np.ndarray | None = None
    relevance_NV: np.ndarray | None = None
    validation_sets: Sequence[str] = ()

    def __post_init__(self) -> None:
        N = len(self.prompt_ids)
        assert all(len(column) == N for column in (self.pass_rate, self.n, self.tokens, self.outcome, self.has_signal))
        by_set = [values_NV for values_NV in (self.rank_NV, self.relevance_NV) if values_NV is not None]
        assert all(values_NV.shape == (N, len(self.validation_sets)) for values_NV in by_set)

    def __len__(self) -> int:
        return len(self.prompt_ids)
