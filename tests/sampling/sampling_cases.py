"""Observations, every sampler's config, and a scripted world that the tests of samplers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline_lib.config import (
    DynamicSampler,
    GresoSampler,
    Pid,
    PosteriorSampler,
    Sampler,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.records import Outcome
from pipeline_lib.sampling import Decision, Observation, PromptSampler, make_sampler

POOL = [f"p{i:03d}" for i in range(40)]
SAMPLERS: dict[str, Sampler] = {
    "uniform": UniformSampler(),
    "dynamic": DynamicSampler(),
    "greso": GresoSampler(),
    "greso, pid": GresoSampler(controller=Pid()),
    "posterior": PosteriorSampler(),
    "posterior, pid": PosteriorSampler(controller=Pid()),
    "variance_sigmoid": VarianceSigmoidSampler(),
    "variance_sigmoid, pid": VarianceSigmoidSampler(controller=Pid()),
}
EXPLORATION = {"greso": 0.01, "posterior": 0.01, "variance_sigmoid": 0.01}
"""ε by type; samplers that keep everything have none."""


def binary(prompt_id: str, n: int, n_correct: int) -> Observation:
    """A group of `n` whose rewards are 1 and 0 for correct and wrong."""
    return Observation(prompt_id, n, n_correct, 0 < n_correct < n)


def observed(prompt_id: str, outcome: Outcome) -> Observation:
    """A group of 8 (or of none that could be graded) with this outcome."""
    n_correct = {"all_right": 8, "all_wrong": 0, "mixed": 3, "ungraded": 0}[outcome]
    observation = binary(prompt_id, 0 if outcome == "ungraded" else 8, n_correct)
    assert observation.outcome == outcome
    return observation


def sampler_of(
    config: Sampler, pool: Sequence[str] = POOL, history: Sequence[Observation] = (), seed: int = 7
) -> PromptSampler:
    return make_sampler(config, pool, history, seed, group_size=8)


def play(sampler: PromptSampler, steps: Sequence[int], outcome_of: Callable[[Decision], Outcome]) -> list[Decision]:
    """One proposal of as many prompts as `steps` says, and its rollouts, each step."""
    made: list[Decision] = []
    for n in steps:
        decisions = sampler.propose(n)
        sampler.observe([observed(d.prompt_id, outcome_of(d)) for d in decisions if d.keep])
        sampler.end_step()
        made += decisions
    return made
