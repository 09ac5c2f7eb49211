"""Where texts stand among each other: hashed n-grams, or embeddings of a model. N texts, D dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from pipeline_lib.sampling.priors.package import require_scikit_learn
from pipeline_lib.similarity import embed

if TYPE_CHECKING:  # scipy comes with scikit-learn, which is optional
    import scipy.sparse as sp

Matrix: TypeAlias = "np.ndarray | sp.csr_matrix"
Vectorise = Callable[[Sequence[str]], Matrix]
"""Texts -> [N, D] rows of length 1, or 0 where a text has nothing to go by."""

DIMENSIONS = 2**14
NGRAMS = (1, 3)


def hashed_ngrams(reference: Sequence[str]) -> Vectorise:
    """TF-IDF of hashed character n-grams; how rare one is, is counted in the `reference` texts.

    All digits count as one: a text's operations and their order tell more of its difficulty than its numbers.
    """
    require_scikit_learn()
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    hashing = HashingVectorizer(
        analyzer="char", ngram_range=NGRAMS, n_features=DIMENSIONS, norm=None, alternate_sign=False
    )
    weighting = TfidfTransformer(sublinear_tf=True)

    def counts(texts: Sequence[str]) -> sp.csr_matrix:
        return hashing.transform([re.sub(r"\d", "0", text) for text in texts])

    weighting.fit(counts(reference))
    return lambda texts: weighting.transform(counts(texts))


def embeddings(model: str, device: torch.device) -> Vectorise:
    """Vectors of a sentence-transformers model; a text is embedded once. Raises ValueError like `embed`."""
    known: dict[str, np.ndarray] = {}

    def vectorise(texts: Sequence[str]) -> np.ndarray:
        new = sorted(set(texts) - known.keys())
        if new:
            known.update(
                zip(new, embed(new, model, device=device, key="train.sampler.prior.embedding_model"), strict=True)
            )
        return np.stack([known[text] for text in texts])

    return vectorise
