"""What is known of the pool that a stage selects from. Suffixes: N prompts, V validation sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Likeness:
    """Which prompts are alike, by the policy's states while it reads them."""

    relevance_NV: np.ndarray
    """0..1, to each validation set."""
    states_ND: np.ndarray
    n_tokens_N: np.ndarray
    """Of the prompt."""
    fresh_N: np.ndarray
    """Whether what is known of the prompt is of the newest rollouts that there are, no older policy's."""


@dataclass(frozen=True)
class Candidates:
    """One entry for each prompt of the pool, in any order.

    `pass_rate` and `n` are the latest known (nan and 0 when never graded), `tokens` the mean length of the latest
    completions (nan when never rolled out); `outcome` and `has_signal` are those of the rollouts that it was scored
    with, ungraded and False where it was not rolled out. `rank_NV`, by influence on each validation set, 1 the highest,
    is None until influence has been scored, `likeness` until the policy has read the pool.
    """

    prompt_ids: np.ndarray
    pass_rate: np.ndarray
    n: np.ndarray
    tokens: np.ndarray
    outcome: np.ndarray
    has_signal: np.ndarray
    rank_NV: np.ndarray | None = None
    likeness: Likeness | None = None
    validation_sets: Sequence[str] = ()

    def __post_init__(self) -> None:
        N = len(self.prompt_ids)
        assert all(len(column) == N for column in (self.pass_rate, self.n, self.tokens, self.outcome, self.has_signal))
        by_set = [self.rank_NV, None if self.likeness is None else self.likeness.relevance_NV]
        assert all(values_NV is None or values_NV.shape == (N, len(self.validation_sets)) for values_NV in by_set)

    def __len__(self) -> int:
        return len(self.prompt_ids)
