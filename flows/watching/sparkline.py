"""A row of numbers as a row of little bars."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """One character a value between the least and the greatest; of more than `width` values, each is the mean of a few.

    A value that is not known is a space; where all are equal they stand in the middle.
    """
    n = min(width, len(values))
    bounds = [i * len(values) // n for i in range(n + 1)] if n else []
    shown = [_mean(values[first:last]) for first, last in pairwise(bounds)]
    known = [value for value in shown if value is not None]
    if not known:
        return " " * n
    low, high = min(known), max(known)
    return "".join(" " if value is None else _bar(value, low, high) for value in shown)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _bar(value: float, low: float, high: float) -> str:
    if high == low:
        return BARS[len(BARS) // 2 - 1]
    return BARS[min(int((value - low) / (high - low) * len(BARS)), len(BARS) - 1)]
