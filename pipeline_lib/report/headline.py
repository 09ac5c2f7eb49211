"""The table at the top: what each stage cost and what it brought."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import Row


@dataclass(frozen=True)
class PassRate:
    """Pass rates in per cent with their standard errors, already as text; empty where not known."""

    before: str
    after: str


@dataclass(frozen=True)
class HeadlineRow:
    stage: int
    prompts_selected: int | None
    steps: int | None
    rollouts: int | None
    rollouts_skipped: int | None
    pass_rates: list[PassRate]


@dataclass(frozen=True)
class Headline:
    sets: list[str]
    """Column heads, e.g. "hard, avg@8"."""
    rows: list[HeadlineRow]
    training_rollouts: int
    training_skipped: int

    @property
    def share_skipped(self) -> float:
        return self.training_skipped / max(self.training_rollouts + self.training_skipped, 1)


def headline(data: ReportData) -> Headline:
    averages = [row for row in data.evaluations.to_pylist() if row["metric"] == "avg"]
    sets = sorted({(row["evaluation_set"], row["k"]) for row in averages})
    values = {(row["evaluation_set"], row["k"], row["stage"]): _per_cent(row) for row in averages}
    stages = data.stages.to_pylist()
    trained = [stage for stage in stages if stage["stage"] > 0]
    return Headline(
        sets=[f"{name}, avg@{k}" for name, k in sets],
        rows=[
            HeadlineRow(
                stage=row["stage"],
                prompts_selected=row["prompts_selected"],
                steps=row["steps"],
                rollouts=row["rollouts"],
                rollouts_skipped=row["rollouts_skipped"],
                pass_rates=[
                    PassRate(
                        before=values.get((name, k, row["stage"] - 1), ""),
                        after=values.get((name, k, row["stage"]), ""),
                    )
                    for name, k in sets
                ],
            )
            for row in stages
        ],
        training_rollouts=sum(stage["rollouts"] or 0 for stage in trained),
        training_skipped=sum(stage["rollouts_skipped"] or 0 for stage in trained),
    )


def _per_cent(row: Row) -> str:
    error = row["standard_error"]
    return f"{row['value']:.1%}" if error is None else f"{100 * row['value']:.1f} ± {100 * error:.1f}%"
