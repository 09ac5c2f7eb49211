"""The α whose pass rate is nearest to a target."""

from __future__ import annotations

import numpy as np

from pipeline_lib.config import PassRateSelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.strategy import (
    UNKNOWN_SCORE,
    Scored,
    Seed,
    joined,
    pass_rate_words,
    unknown_pass_rate_words,
)


def score_pass_rate(config: PassRateSelection, candidates: Candidates, seed: Seed) -> Scored:
    p = candidates.pass_rate
    score = np.where(np.isnan(p), UNKNOWN_SCORE, -np.abs(p - config.target))
    why = joined(pass_rate_words(candidates), f", target {config.target:g}")
    return Scored(score, why, unknown_pass_rate_words(candidates))
