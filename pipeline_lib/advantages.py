"""Group-normalised advantages, shared by GRPO training and influence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_lib.records import REWARD_TOLERANCE, RolloutGroup, Trajectory

STD_EPSILON = 1e-4


def group_advantages(rewards: Sequence[float | None], *, divide_by_std: bool = True) -> list[float]:
    """(r - mean) / (std + 1e-4), std unbiased (n - 1), over the graded rewards of one group.

    GRPO, arXiv 2402.03300; the epsilon and the unbiased std are those of the CROPI release, arXiv 2510.26491.
    Without the division it is Dr. GRPO's advantage, arXiv 2503.20783.
    An ungraded trajectory (None) gets 0 and enters neither mean nor std. Rewards that differ by no more than
    REWARD_TOLERANCE carry no signal: every advantage is exactly 0.
    """
    graded = np.array([r for r in rewards if r is not None], dtype=np.float64)
    if len(graded) < 2 or np.ptp(graded) <= REWARD_TOLERANCE:
        return [0.0] * len(rewards)
    mean = float(graded.mean())
    scale = float(graded.std(ddof=1)) + STD_EPSILON if divide_by_std else 1.0
    return [0.0 if r is None else (r - mean) / scale for r in rewards]


def graded_advantages(group: RolloutGroup, *, divide_by_std: bool = True) -> list[tuple[Trajectory, float]]:
    """The graded trajectories of a group, each with its advantage."""
    advantages = group_advantages(group.rewards, divide_by_std=divide_by_std)
    return list(zip(group.graded, advantages, strict=True))
