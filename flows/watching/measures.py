"""The numbers of a training that are worth watching, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.watching.sight import SeenStep

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measure:
    """`of` gives it for a row of train_steps, None where it is not known; `words` writes a value."""

    name: str
    of: Callable[[Row], float | None]
    words: Callable[[float], str]


def _skip_rate(row: Row) -> float | None:
    return row["prompts_skipped"] / row["prompts_proposed"] if row["prompts_proposed"] else None


def _tokens_a_second(row: Row) -> float | None:
    return row["generated_tokens"] / row["rollout_time"] if row["rollout_time"] else None


MEASURES = (
    Measure("reward", lambda row: row["reward"], "{:.3f}".format),
    Measure("zero variance", lambda row: row["frac_reward_zero_std"], "{:.0%}".format),
    Measure("skip rate", _skip_rate, "{:.0%}".format),
    Measure("KL", lambda row: row["kl"], "{:.2g}".format),
    Measure("tokens/s", _tokens_a_second, "{:,.0f}".format),
)
LEAST_SHARE = 0.005
PHASES = {
    "generation": "rollout_time",
    "verification": "verify_time",
    "log-probs": "logprob_time",
    "update": "update_time",
}


def newest(measure: Measure, rows: Sequence[Row]) -> str | None:
    """In words; None where no row knows it."""
    value = next((value for row in reversed(rows) if (value := measure.of(row)) is not None), None)
    return None if value is None else measure.words(value)


def shares_by_step(steps: Sequence[SeenStep]) -> list[tuple[str, float]]:
    """Share of the time of a run's steps, by what they do, the greatest first."""
    return _shares((step.name.replace("_", " "), step.seconds or 0.0) for step in steps)


def shares_of_training(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """Share of the steps' time, by phase, the greatest first; the rest is records and looks at the validation set."""
    return _shares(spent for row in rows for spent in _phases(row))


def _phases(row: Row) -> Iterator[tuple[str, float]]:
    known = [(phase, row.get(column) or 0.0) for phase, column in PHASES.items()]
    yield from known
    yield "rest", max(0.0, row["step_time"] - sum(seconds for _, seconds in known))


def _shares(spent: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    seconds: dict[str, float] = {}
    for name, more in spent:
        seconds[name] = seconds.get(name, 0.0) + more
    total = sum(seconds.values())
    by_size = sorted(seconds.items(), key=lambda item: -item[1])
    return [(name, some / total) for name, some in by_size if total and some / total >= LEAST_SHARE]
