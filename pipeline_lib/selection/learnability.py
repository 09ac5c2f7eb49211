"""Top α by learnability p(1-p), the variance of a right-or-wrong reward."""

from __future__ import annotations

import numpy as np

from pipeline_lib.config import LearnabilitySelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.strategy import (
    UNKNOWN_SCORE,
    Scored,
    Seed,
    pass_rate_words,
    unknown_pass_rate_words,
)


def score_learnability(config: LearnabilitySelection, candidates: Candidates, seed: Seed) -> Scored:
    p = candidates.pass_rate
    score = np.where(np.isnan(p), UNKNOWN_SCORE, p * (1 - p))
    return Scored(score, pass_rate_words(candidates), unknown_pass_rate_words(candidates))
