"""What a selection strategy is: a score for every prompt of the pool, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pipeline_lib.selection.candidates import Candidates

Seed = int | Sequence[int]

UNKNOWN_SCORE = -2.0
"""Below every score that a known pass rate can get; finite, so that it survives JSON."""


@dataclass(frozen=True)
class Scored:
    score: np.ndarray
    """Higher is chosen first."""
    why: Sequence[str]
    """Why a kept prompt was kept, one for each prompt."""
    without: Sequence[str | None] | None = None
    """Why a prompt could not be ranked on its merits, None where it could."""


class Strategy(Protocol):
    def __call__(self, config: Any, candidates: Candidates, seed: Seed) -> Scored: ...


def pass_rate_words(candidates: Candidates) -> list[str]:
    return [f"pass rate {rate:.3g} of {n}" for rate, n in zip(candidates.pass_rate, candidates.n, strict=True)]


def unknown_pass_rate_words(candidates: Candidates) -> list[str | None]:
    return ["pass rate unknown: ranked last" if unknown else None for unknown in np.isnan(candidates.pass_rate)]
