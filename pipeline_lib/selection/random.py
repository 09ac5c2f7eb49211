"""α drawn at random: the control of equal size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.config import RandomSelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.strategy import Scored, Seed


def score_random(config: RandomSelection, candidates: Candidates, seed: Seed) -> Scored:
    """Draws are dealt in order of prompt_id, so that the order of the pool does not matter."""
    score = np.empty(len(candidates))
    score[pc.sort_indices(pa.array(candidates.prompt_ids, pa.string())).to_numpy()] = np.random.default_rng(
        seed
    ).random(len(candidates))
    return Scored(score, pa.repeat("drawn at random", len(candidates)))
