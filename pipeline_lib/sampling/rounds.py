"""How many prompts the next generation round rolls out: ceil(β · missing / (1 - zvr)), within bounds."""

from __future__ import annotations

import math

from pipeline_lib.config import Refill

MAX_ZERO_VARIANCE_SHARE = 0.95
"""A round in which every group is zero-variance must not ask for infinitely many prompts."""


class RoundSizer:
    """Sizes are multiples of `divisor`, the number of processes that share a round.

    They are rounded up, or down where the ceiling leaves no room; a ceiling below the divisor gives way to it.
    """

    def __init__(self, config: Refill, prompts_per_step: int, divisor: int = 1) -> None:
        self._config = config
        self._divisor = divisor
        self._ceiling = config.max_prompts or math.ceil(1.5 * prompts_per_step)
        self._floor = min(config.min_prompts, self._ceiling)
        self.zero_variance_share = 0.0

    def next_round(self, missing: int) -> int:
        """Prompts to roll out when `missing` groups with signal are wanted."""
        wanted = math.ceil(self._config.oversample * missing / (1 - self.zero_variance_share))
        size = min(max(wanted, self._floor), self._ceiling)
        most = max(self._ceiling // self._divisor, 1)
        return self._divisor * min(math.ceil(size / self._divisor), most)

    def observe(self, n_groups: int, n_with_signal: int) -> None:
        if n_groups == 0:
            return
        newest = 1 - n_with_signal / n_groups
        average = self.zero_variance_share + self._config.smoothing * (newest - self.zero_variance_share)
        self.zero_variance_share = min(average, MAX_ZERO_VARIANCE_SHARE)
