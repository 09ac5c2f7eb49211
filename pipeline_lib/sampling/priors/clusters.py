"""Prompts that are alike share a prior, never a label. N texts, C clusters, D dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.concentration import beta_of, concentration
from pipeline_lib.sampling.priors.package import require_scikit_learn
from pipeline_lib.sampling.priors.rows import Row, Text, counts_of, one_row_a_prompt
from pipeline_lib.sampling.priors.vectors import Vectorise

DIMENSIONS = 64
"""k-means on all 2**14 hashed n-grams takes many times as long, and counts rare ones for as much."""


def cluster_texts(texts: Sequence[Text], vectorise: Vectorise, clusters: int, seed: int) -> dict[str, int]:
    """Cluster of each prompt by k-means on the leading DIMENSIONS of the vectors; at most one a distinct vector."""
    require_scikit_learn()
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD

    distinct = sorted({text.text for text in texts})
    vectors_ND = vectorise(distinct)
    leading_ND = TruncatedSVD(min(DIMENSIONS, *vectors_ND.shape), random_state=seed).fit_transform(vectors_ND)
    # Texts that differ in digits alone have one vector: no more clusters than can be told apart.
    apart = len(np.unique(leading_ND.round(6), axis=0))
    labels_N = KMeans(min(clusters, apart), n_init=4, random_state=seed).fit_predict(leading_ND)
    of_text = dict(zip(distinct, labels_N.tolist(), strict=True))
    return {text.prompt_id: of_text[text.text] for text in texts}


def cluster_rates(cluster_N: np.ndarray, n_N: np.ndarray, n_correct_N: np.ndarray, shrinkage: float) -> np.ndarray:
    """[N]: for each prompt its cluster's pass rate without the prompt itself, drawn towards that of all others.

    m_c = (S_c + shrinkage·m) / (N_c + shrinkage): `shrinkage` counts completions, and m = (S + 1) / (N + 2).
    """
    size = int(cluster_N.max()) + 1
    others_N = n_N.sum() - n_N
    other_correct_N = n_correct_N.sum() - n_correct_N
    in_cluster_N = np.bincount(cluster_N, n_N, size)[cluster_N] - n_N
    correct_in_cluster_N = np.bincount(cluster_N, n_correct_N, size)[cluster_N] - n_correct_N
    mean_N = (other_correct_N + 1) / (others_N + 2)
    return (correct_in_cluster_N + shrinkage * mean_N) / (in_cluster_N + shrinkage)


class ClusterRates:
    """Beta(κm_c, κ(1-m_c)) for all prompts of a cluster; κ from how far single prompts are off m_c."""

    def __init__(
        self, rows: Sequence[Row], clusters: dict[str, int], *, shrinkage: float, max_concentration: float
    ) -> None:
        self._clusters, self._shrinkage = clusters, shrinkage
        self._rows = [row for row in one_row_a_prompt(rows) if row.text.prompt_id in clusters]
        self._n_N, self._n_correct_N = counts_of(self._rows)
        rates_N = self.means([row.text for row in self._rows])
        self.concentration = concentration(self._n_N, self._n_correct_N, rates_N, most=max_concentration)

    def means(self, texts: Sequence[Text]) -> np.ndarray:
        """[N]; none has seen its own prompt's outcome."""
        if not texts:
            return np.empty(0)
        row_of = {row.text.prompt_id: i for i, row in enumerate(self._rows)}
        known_M = [self._clusters[row.text.prompt_id] for row in self._rows]
        new = [text for text in texts if text.prompt_id not in row_of]
        # A prompt without a history is a row of no completions.
        cluster = np.array(known_M + [self._clusters[text.prompt_id] for text in new], int)
        zeros = np.zeros(len(new))
        rates = cluster_rates(
            cluster, np.append(self._n_N, zeros), np.append(self._n_correct_N, zeros), self._shrinkage
        )
        row_of |= {text.prompt_id: len(known_M) + i for i, text in enumerate(new)}
        return rates[[row_of[text.prompt_id] for text in texts]]

    def betas(self, texts: Sequence[Text]) -> list[Beta]:
        return [beta_of(mean, self.concentration) for mean in self.means(texts)]
