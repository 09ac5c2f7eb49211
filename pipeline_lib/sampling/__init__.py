"""Selective rollouts: which prompts of the pool are rolled out next, decided before the rollout."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.config import GresoSampler, Sampler
from pipeline_lib.sampling.base import Decision, Observation, PromptSampler
from pipeline_lib.sampling.greso import Greso
from pipeline_lib.sampling.rounds import RoundSizer
from pipeline_lib.sampling.uniform import Uniform

__all__ = ["Decision", "Observation", "PromptSampler", "RoundSizer", "make_sampler"]


def make_sampler(
    config: Sampler, prompt_ids: Sequence[str], history: Sequence[Observation], seed: int
) -> PromptSampler:
    """The sampler that `config` names, over `prompt_ids`, with `history` (oldest first) as its prior."""
    sampler: PromptSampler = (
        Greso(config, prompt_ids, seed) if isinstance(config, GresoSampler) else Uniform(prompt_ids, seed)
    )
    sampler.observe(history)
    sampler.end_step()  # the prior is not part of the first step
    return sampler
