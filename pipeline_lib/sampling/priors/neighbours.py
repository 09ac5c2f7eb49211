"""Pass rates of the nearest texts with a history, never a text's own. N texts asked about, M with a history."""

from __future__ import annotations

import numpy as np

from pipeline_lib.sampling.priors.vectors import Matrix

ROWS_AT_ONCE = 1024
"""Bounds the [rows, M] block of cosines in memory."""


def neighbour_features(
    asked_ND: Matrix,
    known_MD: Matrix,
    n_M: np.ndarray,
    n_correct_M: np.ndarray,
    *,
    neighbours: int,
    leave_one_out: bool,
) -> np.ndarray:
    """[N, 2]: log odds of the neighbours' pass rate, weighted by cosine, and their mean cosine.

    The rate is (1 + Σ w·n_correct) / (2 + Σ w·n), so that no neighbours mean one half and there is no global
    mean for an outcome to leak through. With `leave_one_out` the asked are the known, row by row, and none is
    its own neighbour. Of equally near texts the first are taken.
    """
    blocks = []
    for start in range(0, asked_ND.shape[0], ROWS_AT_ONCE):
        cosine_BM = asked_ND[start : start + ROWS_AT_ONCE] @ known_MD.T
        cosine_BM = np.array(cosine_BM if isinstance(cosine_BM, np.ndarray) else cosine_BM.toarray(), float)
        if leave_one_out:
            own = np.arange(cosine_BM.shape[0])
            cosine_BM[own, start + own] = -1.0  # no farther text exists, and a weight below 0 counts as none
        # Equal texts come out of the product with other last bits: rounded, they are equally near.
        nearest_BK = np.argsort(-cosine_BM.round(6), axis=1, kind="stable")[:, :neighbours]
        weight_BK = np.clip(np.take_along_axis(cosine_BM, nearest_BK, axis=1), 0.0, None)
        right_B = 1 + (weight_BK * n_correct_M[nearest_BK]).sum(axis=1)
        wrong_B = 1 + (weight_BK * (n_M - n_correct_M)[nearest_BK]).sum(axis=1)
        blocks.append(np.stack([np.log(right_B / wrong_B), weight_BK.mean(axis=1)], axis=1))
    return np.concatenate(blocks)
