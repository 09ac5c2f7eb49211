"""avg@k and unbiased pass@k of rollout groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from pipeline_lib.records import RolloutGroup


@dataclass(frozen=True, slots=True)
class Metric:
    """`standard_error` is the sample std over prompts / sqrt(n_prompts); None for one prompt."""

    metric: Literal["avg", "pass"]
    k: int
    value: float
    standard_error: float | None
    n_prompts: int


def pass_at_k(n: int, n_correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the chance that k of n completions drawn at random hold a correct one.

    Chen et al., arXiv 2107.03374. In whole numbers, so exact to the last bit for any n.
    """
    draws = math.comb(n, k)
    return (draws - math.comb(n - n_correct, k)) / draws


def evaluate_groups(groups: Sequence[RolloutGroup], pass_at: Iterable[int]) -> list[Metric]:
    """avg@k, k being the samples per prompt, then pass@k for each k of `pass_at`; means over prompts.

    Ungraded completions are left out of a prompt's n. A prompt with none graded is left out of avg@k, one
    with fewer than k graded is left out of pass@k; a metric that no prompt is left for is not reported.
    """
    counts = [(len(group.graded), group.n_correct) for group in groups]
    samples = max((len(group.trajectories) for group in groups), default=0)
    metrics = [_over_prompts("avg", samples, [c / n for n, c in counts if n > 0])]
    for k in sorted(set(pass_at)):
        metrics.append(_over_prompts("pass", k, [pass_at_k(n, c, k) for n, c in counts if n >= k]))
    return [metric for metric in metrics if metric.n_prompts > 0]


def _over_prompts(metric: Literal["avg", "pass"], k: int, values: list[float]) -> Metric:
    n = len(values)
    standard_error = stdev(values) / math.sqrt(n) if n > 1 else None
    return Metric(metric, k, fmean(values) if values else math.nan, standard_error, n)
