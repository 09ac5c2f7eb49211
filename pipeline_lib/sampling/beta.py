"""Beta distributions of a prompt's pass rate, and the chance that a group sampled from one is mixed."""

from __future__ import annotations

import math
from typing import NamedTuple


class Beta(NamedTuple):
    """Beta(a, b) over the chance that one completion is correct; a and b are above 0."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)


def mixed_probability(beta: Beta, group_size: int) -> float:
    """V_G = 1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b): the chance that `group_size` completions are not all alike.

    The score of MaPP, the posterior-predictive probability of a group that is neither all right nor all wrong.
    B(a+G, b)/B(a, b) is the product of 1 - b/(a+b+i) for i < G; summing logs of these, rather than subtracting
    log-gammas of large numbers, keeps V exact where it is small. Raises ValueError unless a, b > 0.
    """
    small, large = sorted(beta)
    if small <= 0:
        raise ValueError(f"Beta({beta.a}, {beta.b}): both parameters must be above 0; give a proper prior")
    total = small + large
    log_all_likely = sum(math.log1p(-small / (total + i)) for i in range(group_size))
    all_unlikely = math.prod((small + i) / (total + i) for i in range(group_size))
    return max(0.0, -math.expm1(log_all_likely) - all_unlikely)
