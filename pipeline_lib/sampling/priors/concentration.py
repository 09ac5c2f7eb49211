"""How sure a predicted pass rate is: κ of Beta(κm, κ(1-m)), from what the prediction leaves unexplained."""

from __future__ import annotations

import numpy as np

from pipeline_lib.sampling.beta import Beta

LEAST = 0.5
"""κ of a prediction that leaves everything open; below it a Beta has next to all its mass at 0 and 1."""
UNKNOWN = 2.0
"""κ where nothing tells it: that of the uniform Beta(1, 1)."""


def concentration(n_N: np.ndarray, n_correct_N: np.ndarray, mean_N: np.ndarray, *, most: float) -> float:
    """κ by moments, between LEAST and `most`; `mean_N` must not have seen the outcomes it is held against.

    For a beta-binomial count, E(s - nm)² = nm(1-m)(1 + (n-1)ρ) with ρ = 1 / (κ + 1). Summed over prompts and
    solved for ρ: what the squared residuals exceed the binomial variance by, per pair of completions.
    UNKNOWN where no prompt has two completions, or all outcomes are of one class: agreement of prompts that
    were all solved, or none, is no sign of a sharp prediction.
    """
    one_class = n_correct_N.sum() == 0 or n_correct_N.sum() == n_N.sum()
    variance_N = mean_N * (1 - mean_N)
    pairs = float((n_N * (n_N - 1) * variance_N).sum())
    if one_class or pairs == 0:
        return min(UNKNOWN, most)
    excess = float(((n_correct_N - n_N * mean_N) ** 2 - n_N * variance_N).sum())
    rho = excess / pairs
    return min(most, max(LEAST, 1 / rho - 1)) if rho > 0 else most


def beta_of(mean: float, kappa: float) -> Beta:
    """Beta of that mean and concentration; the mean is kept off 0 and 1, where no observation could move it."""
    mean = min(max(float(mean), 0.01), 0.99)  # a float of numpy would not go into a checkpoint
    return Beta(kappa * mean, kappa * (1 - mean))
