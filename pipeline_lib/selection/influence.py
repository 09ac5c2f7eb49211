"""Top α by influence, fused over the validation sets by reciprocal rank."""

from __future__ import annotations

import numpy as np

from pipeline_lib.config import InfluenceSelection
from pipeline_lib.selection.candidates import Candidates
from pipeline_lib.selection.ranks import descending_ranks
from pipeline_lib.selection.strategy import Scored, Seed


def reciprocal_rank_fusion(ranks_NV: np.ndarray, rrf_k: float) -> np.ndarray:
    """Σ_j 1 / (rrf_k + rank_j) over the V sets. Cormack et al. 2009; rrf_k = 0 in CROPI, arXiv 2510.26491.

    Every rank counts, where the CROPI release gives 0 to those below the number kept.
    """
    # Sorted before summing: prompts with the same ranks on different sets must tie to the last bit.
    return np.sort(1.0 / (rrf_k + ranks_NV), axis=1).sum(axis=1)


def score_influence(config: InfluenceSelection, candidates: Candidates, seed: Seed) -> Scored:
    """A prompt without signal has gradient 0, hence cosine 0: on each set it ranks below every positive
    influence and above every negative one, and is kept only where fewer prompts than wanted help."""
    cosine_NV = candidates.cosine_NV
    if cosine_NV is None:
        raise ValueError(
            "selection.type=influence needs influence scores, and these candidates carry none; "
            "run the score step first, or select by learnability, pass_rate, random or all"
        )
    ranks_NV = np.stack([descending_ranks(column, candidates.prompt_ids) for column in cosine_NV.T], axis=1)
    best_N = ranks_NV.argmin(axis=1)
    best_rank_N = ranks_NV.min(axis=1)
    return Scored(
        reciprocal_rank_fusion(ranks_NV, config.rrf_k),
        [
            f"best on {candidates.validation_sets[best]} (rank {rank})"
            for best, rank in zip(best_N.tolist(), best_rank_N.tolist(), strict=True)
        ],
        [
            None if has_signal else _no_gradient(str(outcome))
            for has_signal, outcome in zip(candidates.has_signal, candidates.outcome, strict=True)
        ],
    )


def _no_gradient(outcome: str) -> str:
    return f"{'zero-variance' if outcome != 'ungraded' else 'nothing graded'} offline ({outcome}): no gradient"
