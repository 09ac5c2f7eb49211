"""How far scores and the selection made from them can be trusted. Suffix: N prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

DIAGNOSIS_SCHEMA = pa.schema(
    {"subject": pa.string(), "metric": pa.string(), "value": pa.float64(), "n": pa.int64()},
)


@dataclass(frozen=True)
class Fact:
    """One number, of a validation set or, where `subject` is empty, of the fused score."""

    subject: str
    metric: str
    value: float | None
    """None where it is not defined, as a share of 0 prompts."""
    n: int
    """Prompts that it was computed from."""


def diagnose(
    score_N: np.ndarray, selected_N: np.ndarray, has_signal_N: np.ndarray, cosine_by_set: Mapping[str, np.ndarray]
) -> pa.Table:
    """Rows of DIAGNOSIS_SCHEMA. `has_signal_N` is of the offline rollouts: without signal there is no gradient."""
    pool, with_signal = len(score_N), int(has_signal_N.sum())
    cosines = list(cosine_by_set.values())
    ranked = [score_N, np.stack(cosines, axis=1)] if cosines else [score_N]
    facts = [
        Fact("", "share_tied", share_tied(score_N[has_signal_N]), with_signal),
        Fact("", "ties_broken_at_cut", ties_broken_at_cut(selected_N, *ranked), pool),
    ]
    for name, cosine_N in cosine_by_set.items():
        facts += [
            Fact(name, "share_zero", share_zero(cosine_N), pool),
            Fact(name, "share_tied", share_tied(cosine_N[has_signal_N]), with_signal),
            Fact(name, "effective_prompts", effective_prompts(cosine_N), int((cosine_N > 0).sum())),
        ]
    return pa.Table.from_pylist([asdict(fact) for fact in facts], DIAGNOSIS_SCHEMA)


def share_zero(score_N: np.ndarray) -> float | None:
    """Share whose score is exactly 0."""
    return float(np.mean(score_N == 0)) if len(score_N) else None


def share_tied(score_N: np.ndarray) -> float | None:
    """Share whose score is exactly another's."""
    if len(score_N) == 0:
        return None
    _, counts = np.unique(score_N, return_counts=True)
    return float(counts[counts > 1].sum() / len(score_N))


def ties_broken_at_cut(selected_N: np.ndarray, *ranked: np.ndarray) -> int:
    """How many prompts have the very scores of one that the cut parts them from, at any step of the ranking.

    `ranked` are the scores [N] or [N, D] that ranks were made of one after the other. prompt_id decided which of
    the like ones was selected, so it is no merit of theirs.
    """
    broken_N = np.zeros(len(selected_N), dtype=bool)
    for score in ranked:
        _, like_N = np.unique(score, axis=0, return_inverse=True)
        broken_N |= np.isin(like_N, np.intersect1d(like_N[selected_N], like_N[~selected_N]))
    return int(broken_N.sum())


def effective_prompts(cosine_N: np.ndarray) -> float | None:
    """exp(-Σ p_i ln p_i) with p_i = max(cosine_i, 0) / Σ_j max(cosine_j, 0): the Hill number of order 1.

    From 1, where one prompt has all positive influence, to the number of prompts that have any, where all have
    the same. None where no influence is positive.
    """
    positive = cosine_N[cosine_N > 0]
    if len(positive) == 0:
        return None
    # Sorted, so that the order of the pool does not show in the last bits; over the maximum, so that none vanishes.
    weight = np.sort(positive / positive.max())
    p = weight / weight.sum()
    entropy = -np.sum(p * np.log(p, out=np.zeros_like(p), where=p > 0))
    return float(np.exp(entropy))
