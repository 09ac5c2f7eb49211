"""What prompts would show that were not rolled out, told from those that were by the policy's states while it reads
them. Suffixes: N prompts, D dimensions of a state, F features, S of the N prompts that were seen."""

from __future__ import annotations

import numpy as np

PENALTIES = np.logspace(-6, 1, 15)
"""Of squared weights, in squares of the seen features' largest singular value."""


def features(states_ND: np.ndarray, n_tokens_N: np.ndarray) -> np.ndarray:
    """[N, D + 2] states, and the prompt's length twice, each as strong as the states' leading direction."""
    length_N2 = np.stack([n_tokens_N, np.log(n_tokens_N)], axis=1).astype(np.float64)
    length_N2 -= length_N2.mean(axis=0)
    deviation_2 = length_N2.std(axis=0)
    strongest = states_ND.std(axis=0).max()
    length_N2 *= np.divide(strongest, deviation_2, out=np.zeros(2), where=deviation_2 > 0)
    return np.column_stack([states_ND, length_N2])


def expected(features_NF: np.ndarray, seen_N: np.ndarray, value_N: np.ndarray) -> np.ndarray:
    """[N] ridge regression of `value_N`, which counts where `seen_N` alone, and never beyond the least and the greatest
    seen; its penalty is the one of PENALTIES with the least squared error on prompts left out one at a time, the
    greatest such one.

    With one prompt seen it is that one's value, with none 0.
    """
    if not seen_N.any():
        return np.zeros(len(features_NF))
    center_F, mean = features_NF[seen_N].mean(axis=0), value_N[seen_N].mean()
    U_SR, s_R, V_RF = np.linalg.svd(features_NF[seen_N] - center_F, full_matrices=False)
    rest_S = value_N[seen_N] - mean
    if s_R[0] == 0 or not rest_S.any():
        return np.full(len(features_NF), mean)
    shrunk_PR = s_R**2 / (s_R**2 + PENALTIES[:, None] * s_R[0] ** 2)
    fitted_PS = (shrunk_PR * (U_SR.T @ rest_S)) @ U_SR.T
    # A prompt's pull on its own fitted value: left out, its residual is the residual over 1 minus that.
    leverage_PS = 1 / len(rest_S) + shrunk_PR @ np.square(U_SR).T
    error_P = np.square((rest_S - fitted_PS) / np.maximum(1 - leverage_PS, 1e-9)).mean(axis=1)
    best = int(np.flatnonzero(error_P <= error_P.min() * (1 + 1e-9))[-1])
    weights_F = V_RF.T @ (shrunk_PR[best] / np.where(s_R > 0, s_R, np.inf) * (U_SR.T @ rest_S))
    told_N = mean + (features_NF - center_F) @ weights_F
    return np.clip(told_N, value_N[seen_N].min(), value_N[seen_N].max())
