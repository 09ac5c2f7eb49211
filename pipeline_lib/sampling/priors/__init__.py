"""Priors for prompts without a history: predicted from their text, or shared by those that are alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pipeline_lib.config import NoPrior, PosteriorSampler, Sampler
from pipeline_lib.records import Prompt
from pipeline_lib.sampling.priors.drift import DriftMonitor, Surprise
from pipeline_lib.sampling.priors.pool import PoolPrior

__all__ = ["DriftMonitor", "PoolPrior", "Surprise", "make_prior"]


def make_prior(config: Sampler, prompts: Sequence[Prompt], *, seed: int, device: torch.device) -> PoolPrior | None:
    """The prior that the sampler's config names over `prompts`, None where it names none.

    Raises ValueError where its package, its embedding model or its `warm_start` is missing.
    """
    if not isinstance(config, PosteriorSampler) or isinstance(config.prior, NoPrior):
        return None
    return PoolPrior(config.prior, prompts, seed=seed, device=device)
