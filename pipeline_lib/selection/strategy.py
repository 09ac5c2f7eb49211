"""What a selection strategy is: a score for every prompt of the pool, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.selection.candidates import Candidates

Seed = int | Sequence[int]

UNKNOWN_SCORE = -2.0
"""Below every score that a known pass rate can get; finite, so that it survives JSON."""


@dataclass(frozen=True)
class Scored:
    score: np.ndarray
    """Higher is chosen first."""
    why: pa.StringArray
    """Why a kept prompt was kept, one for each prompt."""
    without: pa.StringArray | None = None
    """Why a prompt could not be ranked on its merits, NULL where it could."""


class Strategy(Protocol):
    def __call__(self, config: Any, candidates: Candidates, seed: Seed) -> Scored: ...


def joined(*parts: pa.Array | str) -> pa.StringArray:
    """The parts beside each other, prompt by prompt; NULL where one of them is."""
    return pc.binary_join_element_wise(*parts, "")


def pass_rate_words(candidates: Candidates) -> pa.StringArray:
    rates = pa.array(candidates.pass_rate).dictionary_encode()
    words = pa.array([f"{rate:.3g}" for rate in rates.dictionary.to_pylist()], pa.string())
    return joined("pass rate ", words.take(rates.indices), " of ", pa.array(candidates.n).cast(pa.string()))


def unknown_pass_rate_words(candidates: Candidates) -> pa.StringArray:
    unknown = pa.array(np.isnan(candidates.pass_rate))
    return pc.if_else(unknown, "pass rate unknown: ranked last", pa.scalar(None, pa.string()))


def best_set_words(candidates: Candidates, rank_NV: np.ndarray) -> pa.StringArray:
    best_set = pa.array(list(candidates.validation_sets), pa.string()).take(pa.array(rank_NV.argmin(axis=1)))
    return joined("best on ", best_set, " (rank ", pa.array(rank_NV.min(axis=1)).cast(pa.string()), ")")


def no_gradient_words(candidates: Candidates) -> pa.StringArray:
    outcome = pa.array(candidates.outcome, pa.string())
    kind = pc.if_else(pc.equal(outcome, "ungraded"), "nothing graded", "zero-variance")
    has_signal = pa.array(candidates.has_signal.astype(bool))
    return pc.if_else(has_signal, pa.scalar(None, pa.string()), joined(kind, " offline (", outcome, "): no gradient"))
