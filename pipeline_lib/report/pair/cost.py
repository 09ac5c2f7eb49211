"""What each of two runs paid for its pass rates: rollouts, tokens, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import Panel, Section, bare_figure, plain
from pipeline_lib.report.pair.data import PairData
from pipeline_lib.report.pair.sides import SHADES
from pipeline_lib.report.time_charts import unit_of

COSTS = (("rollouts", "rollouts"), ("tokens", "generated tokens"), ("seconds", "time"))


@dataclass(frozen=True)
class Point:
    """A run as it stood when a stage was evaluated; what it had cost since its beginning."""

    stage: int
    value: float
    standard_error: float | None
    rollouts: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Reached:
    """A pass rate, and where each run first had it; None where it never did."""

    evaluation_set: str
    value: float
    points: Sequence[Point | None]


def cost_curves(data: ReportData) -> dict[str, list[Point]]:
    """avg@k of each evaluation set with what had been spent by then; evaluations themselves cost nothing here."""
    costs = data.costs.to_pylist()
    spent = {
        name: dict(zip((row["stage"] for row in costs), accumulate(row[name] for row in costs), strict=True))
        for name, _ in COSTS
    }
    curves: dict[str, list[Point]] = {}
    for row in data.evaluations.to_pylist():
        if row["metric"] == "avg" and row["stage"] in spent["rollouts"]:
            stage = row["stage"]
            totals = {name: spent[name][stage] for name, _ in COSTS}
            point = Point(stage, row["value"], row["standard_error"], **totals)
            curves.setdefault(row["evaluation_set"], []).append(point)
    return curves


def cost_to_accuracy(pair: PairData) -> list[Reached]:
    """For each pass rate at which either run stood after training: where each run first stood there or above."""
    both = [cost_curves(side) for side in pair.sides]
    table = []
    for name in sorted(both[0].keys() & both[1].keys()):
        values = sorted({point.value for curves in both for point in curves[name] if point.stage > 0})
        for value in values:
            firsts = [next((point for point in curves[name] if point.value >= value), None) for curves in both]
            table.append(Reached(name, value, firsts))
    return table


def accuracy_for_cost(pair: PairData) -> Section:
    title = "Pass rate for its cost"
    both = [cost_curves(side) for side in pair.sides]
    sets = sorted(both[0].keys() & both[1].keys())
    if not sets:
        return Section(title, [Panel("Cost", missing="No evaluation set is common to both runs.")])
    return Section(
        title,
        [
            _panel(name, cost, words, [curves[name] for curves in both], pair.names)
            for cost, words in COSTS
            for name in sets
        ],
        "Each point is the end of a stage, ± one standard error. Rollouts and tokens are those of training and of the "
        "offline groups; time is that of the last attempt of every step but the evaluations. What both runs share "
        "counts for both. Look for the curve that is higher at the same cost.",
    )


def _panel(name: str, cost: str, words: str, curves: Sequence[list[Point]], names: Sequence[str]) -> Panel:
    length = 1.0
    if cost == "seconds":
        length, words = unit_of(max(point.seconds for curve in curves for point in curve))
    figure = bare_figure(x_title=words, y_title="pass rate, avg@k")
    for run, curve, shade in zip(names, curves, SHADES, strict=True):
        figure.add_scatter(
            name=plain(run),
            x=[getattr(point, cost) / length for point in curve],
            y=[point.value for point in curve],
            error_y={"array": [point.standard_error or 0 for point in curve], "thickness": 1.2, "width": 4},
            customdata=[point.stage for point in curve],
            mode="lines+markers",
            line={"color": shade, "width": 2},
            hovertemplate="after stage %{customdata}: %{y:.1%} for %{x:,.4~r}",
        )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return Panel(f"{name}, by {words}", figure=figure)
