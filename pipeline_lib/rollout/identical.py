"""Tells an engine that draws every completion of a prompt with the same random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline_lib.records import RolloutGroup

IMPLAUSIBLE = math.log(1e-9)


def log_chance_of_identical(groups: Sequence[RolloutGroup]) -> float | None:
    """The chance (its natural logarithm) that each group has all completions alike; None where one has not.

    A completion y comes again in each of K - 1 independent draws with p(y)^(K - 1), p the distribution that it was
    sampled from; groups are independent. Groups of one completion say nothing.
    """
    several = [group.trajectories for group in groups if len(group.trajectories) > 1]
    if not several or any(len({t.completion_token_ids for t in group}) > 1 for group in several):
        return None
    return sum((len(group) - 1) * sum(group[0].behaviour_logprobs) for group in several)


def identical_samples(groups: Sequence[RolloutGroup]) -> bool:
    """Whether all completions of each prompt are alike, and that is next to impossible where draws differ.

    A policy that is sure of its answers repeats them: that is no fault of the engine, and its log-probs say so.
    """
    chance = log_chance_of_identical(groups)
    return chance is not None and chance < IMPLAUSIBLE


def identical_in_words(groups: Sequence[RolloutGroup]) -> str:
    """What `identical_samples` has found, with its numbers."""
    chance = log_chance_of_identical(groups)
    assert chance is not None
    most = max(len(group.trajectories) for group in groups)
    return (
        f"each of {len(groups)} prompts got the same completion {most} times, which by its own log-probs has a chance "
        f"of 1 in 10^{-chance / math.log(10):.0f}: the engine draws them with one seed, and they teach nothing"
    )
