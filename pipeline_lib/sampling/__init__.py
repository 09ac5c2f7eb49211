"""Selective rollouts: which prompts of the pool are rolled out next, decided before the rollout."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.config import (
    DynamicSampler,
    GresoSampler,
    PosteriorSampler,
    Sampler,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.sampling.base import Decision, Observation, PromptSampler
from pipeline_lib.sampling.beta import Beta, mixed_probability
from pipeline_lib.sampling.dynamic import Dynamic
from pipeline_lib.sampling.greso import Greso
from pipeline_lib.sampling.informed_posterior import InformedPosterior
from pipeline_lib.sampling.posterior import Posterior
from pipeline_lib.sampling.priors import PoolPrior
from pipeline_lib.sampling.rounds import RoundSizer
from pipeline_lib.sampling.uniform import Uniform
from pipeline_lib.sampling.variance_sigmoid import VarianceSigmoid

__all__ = ["Beta", "Decision", "Observation", "PromptSampler", "RoundSizer", "make_sampler", "mixed_probability"]


def make_sampler(
    config: Sampler,
    prompt_ids: Sequence[str],
    history: Sequence[Observation],
    seed: int,
    *,
    group_size: int,
    prior: PoolPrior | None = None,
) -> PromptSampler:
    """The sampler that `config` names, over `prompt_ids`, which has learned from `history` (oldest first).

    `prior` says what is believed of prompts before any history, and says it anew while training; only `posterior`
    looks at it.
    """
    sampler = _make(config, prompt_ids, seed, group_size, prior)
    sampler.recall(history)
    return sampler


def _make(
    config: Sampler, prompt_ids: Sequence[str], seed: int, group_size: int, prior: PoolPrior | None
) -> PromptSampler:
    match config:
        case UniformSampler():
            return Uniform(prompt_ids, seed)
        case DynamicSampler():
            return Dynamic(prompt_ids, seed)
        case GresoSampler():
            return Greso(config, prompt_ids, seed)
        case PosteriorSampler() if prior is not None or config.drift is not None:
            return InformedPosterior(config, prompt_ids, seed, group_size=group_size, prior=prior)
        case PosteriorSampler():
            return Posterior(config, prompt_ids, seed, group_size=group_size)
        case VarianceSigmoidSampler():
            return VarianceSigmoid(config, prompt_ids, seed)
