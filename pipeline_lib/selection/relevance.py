"""Top α by what a stage can gain for what it costs: likeness to what is asked for, the pass rate's rise, tokens."""

from __future__ import annotations

import numpy as np

from pipeline_lib.config import RelevanceSelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.influence import reciprocal_rank_fusion
from pipeline_lib.selection.ranks import ranks_by_set
from pipeline_lib.selection.strategy import (
    Scored,
    Seed,
    best_set_words,
    joined,
    no_gradient_words,
    pass_rate_words,
)


def expected_gain(pass_rate_N: np.ndarray, n_N: np.ndarray, horizon: float) -> np.ndarray:
    """σ(logit p + h) - p: what a pass rate rises by when training adds `horizon` = h to its log-odds.

    A policy gradient's step on a prompt that is solved with rate p adds to p in proportion to p(1-p), the derivative
    of σ: many steps add to the logit. For small h this is h·p(1-p), learnability; a stage that goes further gains more
    from prompts that begin lower. p is the mean of Jeffreys' posterior, (right + 1/2) / (n + 1); 0 where n is 0.
    """
    p_N = (np.nan_to_num(pass_rate_N) * n_N + 0.5) / (n_N + 1)
    gain_N = 1 / (1 + (1 - p_N) / p_N * np.exp(-horizon)) - p_N
    return np.where(n_N > 0, gain_N, 0.0)


def score_relevance(config: RelevanceSelection, candidates: Candidates, seed: Seed) -> Scored:
    """Gain for each token that a completion takes, by rank on each set, fused as influence is: so that no set with more
    prompts of its kind crowds out another.

    A prompt whose rollouts all got one reward has shown nothing that could be reinforced (too hard, or a wrong gold):
    it is kept only where fewer prompts than wanted have.
    """
    relevance_NV = candidates.relevance_NV
    if relevance_NV is None:
        raise ValueError(
            "selection.type=relevance needs the pool compared with the validation sets, and these candidates carry no "
            "relevance; run the relevance step first, or select by learnability, pass_rate, random or all"
        )
    gain_N = expected_gain(candidates.pass_rate, candidates.n, config.horizon) * candidates.has_signal
    cost_N = np.maximum(candidates.tokens, 1.0) if config.per_token else np.ones(len(candidates))
    value_NV = relevance_NV * (gain_N / cost_N)[:, None]
    rank_NV = ranks_by_set(value_NV, candidates.prompt_ids)
    return Scored(
        reciprocal_rank_fusion(rank_NV, config.rrf_k),
        joined(best_set_words(candidates, rank_NV), ", ", pass_rate_words(candidates)),
        no_gradient_words(candidates),
    )
