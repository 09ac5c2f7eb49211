"""Top α by influence, fused over the validation sets by reciprocal rank."""

from __future__ import annotations

import numpy as np

from pipeline_lib.config import InfluenceSelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.strategy import Scored, Seed, best_set_words, no_gradient_words
from pipeline_lib.selection.top_alpha import number_kept


def reciprocal_rank_fusion(ranks_NV: np.ndarray, rrf_k: float, *, last: int | None = None) -> np.ndarray:
    """Σ_j 1 / (rrf_k + rank_j) over the V sets. Cormack et al. 2009; rrf_k = 0 in CROPI, arXiv 2510.26491.

    Ranks after `last` add 0, as in the CROPI release, where `last` is the number kept; None counts every rank.
    A prompt that no set ranks up to `last` has score 0, and all of those tie.
    """
    terms_NV = 1.0 / (rrf_k + ranks_NV)
    if last is not None:
        terms_NV = np.where(ranks_NV <= last, terms_NV, 0.0)
    # Sorted before summing: prompts with the same ranks on different sets must tie to the last bit.
    return np.sort(terms_NV, axis=1).sum(axis=1)


def score_influence(config: InfluenceSelection, candidates: Candidates, seed: Seed) -> Scored:
    """A prompt without signal has gradient 0, hence cosine 0: on each set it ranks below every positive
    influence and above every negative one, and is kept only where fewer prompts than wanted help."""
    rank_NV = candidates.rank_NV
    if rank_NV is None:
        raise ValueError(
            "selection.type=influence needs influence scores, and these candidates carry none; "
            "run the score step first, or select by learnability, pass_rate, random or all"
        )
    last = number_kept(config.alpha, len(candidates)) if config.truncate else None
    return Scored(
        reciprocal_rank_fusion(rank_NV, config.rrf_k, last=last),
        best_set_words(candidates, rank_NV),
        no_gradient_words(candidates),
    )
