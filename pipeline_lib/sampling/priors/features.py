"""What is known of a prompt before its rollout, as numbers. N texts, F features."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pipeline_lib.sampling.priors.neighbours import neighbour_features
from pipeline_lib.sampling.priors.rows import Row, Text, counts_of
from pipeline_lib.sampling.priors.vectors import Vectorise

NEIGHBOURS = 16
COUNTED = (r"\S+", r"\d+", r"\d", r"[+\-*/^=<>]", r"[A-Z]", r"\n", r"[^\w\s]")
"""Words, numbers, digits, operators, capitals, lines, punctuation."""


def text_counts(texts: Sequence[str]) -> np.ndarray:
    """[N, 1 + len(COUNTED)]: log(1 + length in characters), and log(1 + count) of each of COUNTED."""
    counts = [[len(text), *(len(re.findall(pattern, text)) for pattern in COUNTED)] for text in texts]
    return np.log1p(np.array(counts, float).reshape(len(texts), 1 + len(COUNTED)))


class Features:
    """Features of texts, given the outcomes of those in `history` (at least one row, each prompt once).

    Text counts, which data source (none for one that the history has not), and the pass rate of the nearest
    texts. A prompt's own outcome never enters its own features: the history's rows are left out one at a time.
    """

    def __init__(self, history: Sequence[Row], vectorise: Vectorise) -> None:
        self._vectorise = vectorise
        self._texts = [row.text for row in history]
        self._sources = sorted({text.data_source for text in self._texts})
        self._known_MD = vectorise([text.text for text in self._texts])
        self._n_M, self._n_correct_M = counts_of(history)

    def of_history(self) -> np.ndarray:
        """[M, F], each row without its own outcome."""
        near_M2 = neighbour_features(
            self._known_MD, self._known_MD, self._n_M, self._n_correct_M, neighbours=NEIGHBOURS, leave_one_out=True
        )
        return np.hstack([self._of_texts(self._texts), near_M2])

    def of(self, texts: Sequence[Text]) -> np.ndarray:
        """[N, F] of texts that are not in the history; one that is would see its own outcome."""
        near_N2 = neighbour_features(
            self._vectorise([text.text for text in texts]),
            self._known_MD,
            self._n_M,
            self._n_correct_M,
            neighbours=NEIGHBOURS,
            leave_one_out=False,
        )
        return np.hstack([self._of_texts(texts), near_N2])

    def _of_texts(self, texts: Sequence[Text]) -> np.ndarray:
        one_hot_NS = np.array([[text.data_source == source for source in self._sources] for text in texts], float)
        return np.hstack([text_counts([text.text for text in texts]), one_hot_NS])
