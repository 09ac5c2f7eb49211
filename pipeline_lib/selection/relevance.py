"""Top α by what a stage can gain for what it costs: likeness to what is asked for, the pass rate's rise, tokens."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.config import RelevanceSelection
from pipeline_lib.selection.candidates import Candidates, Likeness
from pipeline_lib.selection.expected import expected, features
from pipeline_lib.selection.influence import reciprocal_rank_fusion
from pipeline_lib.selection.ranks import ranks_by_set
from pipeline_lib.selection.strategy import Scored, Seed, best_set_words, joined, pass_rate_words

OTHERS = 4
"""Completions that what like prompts have shown is worth, beside a prompt's own."""
OLDER = 0.5
"""What a completion of an older policy counts beside one of the newest: that a gold is wrong does not change."""
LEAST_GAIN = 1e-6
"""So that where nothing is to be gained relevance ranks."""


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
    """Relevance times gain for each token that a completion takes, by rank on each set, fused as influence is: so that
    no set with more prompts of its kind crowds out another."""
    likeness = candidates.likeness
    if likeness is None:
        raise ValueError(
            "selection.type=relevance needs the pool compared with the validation sets, and these candidates carry no "
            "relevance; run the relevance step first, or select by learnability, pass_rate, random or all"
        )
    gain_N, tokens_N = foreseen(candidates, likeness, config.horizon)
    worth_N = np.maximum(gain_N, LEAST_GAIN) / (tokens_N if config.per_token else 1.0)
    worth_NV = likeness.relevance_NV * worth_N[:, None]
    # What is not of a set's kind shares its last rank: there, ties broken by id would fuse into places.
    rank_NV = np.where(worth_NV > 0, ranks_by_set(worth_NV, candidates.prompt_ids), len(candidates))
    gains = pa.array([f"{gain:.3f}" for gain in gain_N], pa.string())
    ungraded = pc.if_else(pa.array(np.isnan(candidates.tokens)), "not rolled out yet", "nothing graded yet")
    known = pc.if_else(pa.array(candidates.n > 0), pass_rate_words(candidates), ungraded)
    return Scored(
        reciprocal_rank_fusion(rank_NV, config.rrf_k),
        joined(best_set_words(candidates, rank_NV), ", expected gain ", gains, ", ", known),
        pc.if_else(pa.array(likeness.relevance_NV.any(axis=1)), pa.scalar(None, pa.string()), "like no validation set"),
    )


def foreseen(candidates: Candidates, likeness: Likeness, horizon: float) -> tuple[np.ndarray, np.ndarray]:
    """[N] gain of a prompt's pass rate, and tokens of a completion, if it were rolled out now.

    A group without signal has shown no gain: too hard or a wrong gold, or known already. What a prompt showed counts
    beside OTHERS completions' worth of what the newest rollouts showed of prompts like it, and less where an older
    policy's rollouts showed it.
    """
    # So that the order of the pool does not show in the last bits.
    by_id = pc.sort_indices(pa.array(candidates.prompt_ids, pa.string())).to_numpy()
    features_NF = features(likeness.states_ND[by_id], likeness.n_tokens_N[by_id])
    seen_N = likeness.fresh_N & (candidates.n > 0)

    def of_like_prompts(value_N: np.ndarray) -> np.ndarray:
        told_N = np.empty(len(candidates))
        told_N[by_id] = expected(features_NF, seen_N[by_id], value_N[by_id])
        return told_N

    shown_N = expected_gain(candidates.pass_rate, candidates.n, horizon) * candidates.has_signal
    weight_N = candidates.n * np.where(likeness.fresh_N, 1.0, OLDER)
    gain_N = (weight_N * shown_N + OTHERS * of_like_prompts(shown_N)) / (weight_N + OTHERS)
    length_N = np.log(np.maximum(candidates.tokens, 1.0))
    return gain_N, np.exp(np.where(seen_N, length_N, of_like_prompts(length_N)))
