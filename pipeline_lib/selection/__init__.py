"""Top-α strategies: influence, relevance, learnability, pass_rate, random, all."""

from __future__ import annotations

import pyarrow as pa

from pipeline_lib.config import Selection
from pipeline_lib.selection.all import score_all
from pipeline_lib.selection.candidates import Candidates, Likeness
from pipeline_lib.selection.influence import score_influence
from pipeline_lib.selection.learnability import score_learnability
from pipeline_lib.selection.pass_rate import score_pass_rate
from pipeline_lib.selection.random import score_random
from pipeline_lib.selection.relevance import score_relevance
from pipeline_lib.selection.strategy import Seed, Strategy
from pipeline_lib.selection.top_alpha import SELECTION_SCHEMA, number_kept, top_alpha

STRATEGIES: dict[str, Strategy] = {
    "influence": score_influence,
    "relevance": score_relevance,
    "learnability": score_learnability,
    "pass_rate": score_pass_rate,
    "random": score_random,
    "all": score_all,
}
"""By the config's `type`."""


def select(config: Selection, candidates: Candidates, seed: Seed) -> pa.Table:
    """The whole pool as rows of SELECTION_SCHEMA in order of rank, the top α marked as selected.

    `seed` matters to the random strategy alone: (run seed, stage) draws anew in each stage.
    """
    if len(candidates) == 0:
        raise ValueError("0 prompts to select from: a stage needs at least 1; check prompts.train for rejects")
    return top_alpha(config.type, config.alpha, candidates, STRATEGIES[config.type](config, candidates, seed))


__all__ = ["SELECTION_SCHEMA", "STRATEGIES", "Candidates", "Likeness", "number_kept", "select"]
