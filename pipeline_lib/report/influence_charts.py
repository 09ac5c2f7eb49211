"""Influence of the pool on the validation sets: its distribution, its entropy, and what it adds to pass rate."""

from __future__ import annotations

import math

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import FAINT, PALETTE, Panel, Row, Section, bare_figure, colour, plain


def influence_distribution(data: ReportData) -> Section:
    rows = data.influence_histogram.to_pylist()
    title = "Influence scores"
    if not rows:
        return Section(title, [Panel("Influence", missing=_why_missing(data))])
    left_out = ", ".join(
        f"{stage['prompts_without_gradient']:,} of {stage['prompts_scored']:,} at stage {stage['stage']}"
        for stage in data.stages.to_pylist()
        if stage["prompts_scored"]
    )
    return Section(
        title,
        [*(_histogram(name, _of_set(rows, name)) for name in _sets(rows)), _entropy(data)],
        "Look for mass to the right of 0, prompts whose gradient agrees with the validation set; a peak that "
        "moves towards 0 from stage to stage says that the pool is nearly used up. "
        f"Left out, since a zero-variance group has no gradient: {left_out}.",
    )


def _entropy(data: ReportData) -> Panel:
    title = "Entropy of the influence"
    rows = [
        {**row, "share": math.log(row["value"]) / math.log(row["n"])}
        for row in data.diagnoses.to_pylist()
        if row["metric"] == "effective_prompts" and row["value"] is not None and row["n"] > 1
    ]
    if not rows:
        return Panel(title, missing="Not known: at no stage have two prompts a positive influence.")
    figure = bare_figure(x_title="stage", y_title="share of the largest possible")
    for index, name in enumerate(sorted({row["subject"] for row in rows})):
        of_set = [row for row in rows if row["subject"] == name]
        figure.add_bar(
            name=plain(name),
            x=[str(row["stage"]) for row in of_set],
            y=[row["share"] for row in of_set],
            customdata=[[math.log(row["value"]), row["value"], row["n"]] for row in of_set],
            marker={"color": colour(index)},
            hovertemplate="stage %{x}: %{y:.2f}; %{customdata[0]:.2f} nats, "
            "as if %{customdata[1]:,.1f} of %{customdata[2]:,} prompts had all of it",
        )
    figure.update_layout(barmode="group", bargap=0.4)
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[0, 1.05])
    caption = (
        "Of the positive influence, as shares of the prompts that have any: 1 where all have the same, so that the "
        "ranking is empty, 0 where one prompt has it all. Look for neither end."
    )
    return Panel(title, caption, figure)


def influence_by_pass_rate(data: ReportData) -> Section:
    rows = data.influence_points.to_pylist()
    title = "Influence against pass rate"
    if not rows:
        return Section(title, [Panel("Influence against pass rate", missing=_why_missing(data))])
    return Section(
        f"{title}, stage {rows[0]['stage']}",
        [_scatter(name, _of_set(rows, name)) for name in _sets(rows)],
        "Look for spread within each column: were influence a function of the offline pass rate alone, pass "
        "rate would do as a selector. Groups that were never or always right have influence exactly 0. "
        "At most 1,500 prompts are drawn.",
    )


def _histogram(name: str, rows: list[Row]) -> Panel:
    figure = bare_figure(x_title="cosine with the validation gradient", y_title="prompts")
    for index, stage in enumerate(sorted({row["stage"] for row in rows})):
        bins = [row for row in rows if row["stage"] == stage]
        figure.add_scatter(
            name=f"stage {stage}",
            x=[(row["cosine_low"] + row["cosine_high"]) / 2 for row in bins],
            y=[row["n_prompts"] for row in bins],
            mode="lines",
            line={"shape": "hvh", "color": colour(index), "width": 1.8},
            fill="tozeroy",
            fillcolor=f"{colour(index)}22",
        )
    figure.add_vline(x=0, line={"color": FAINT, "width": 1})
    return Panel(title=f"on {name}", figure=figure)


def _scatter(name: str, rows: list[Row]) -> Panel:
    figure = bare_figure(x_title="offline pass rate", y_title="cosine")
    for label, selected, shade in (("not selected", False, "#aab4be"), ("selected", True, PALETTE[1])):
        points = [row for row in rows if row["selected"] == selected]
        figure.add_scatter(
            name=label,
            x=[row["pass_rate"] for row in points],
            y=[row["cosine"] for row in points],
            mode="markers",
            marker={"color": shade, "size": 7, "opacity": 0.7},
            hovertemplate="pass rate %{x:.0%}, cosine %{y:.3f}",
        )
    figure.update_xaxes(tickformat=".0%", range=[-0.04, 1.04])
    figure.add_hline(y=0, line={"color": FAINT, "width": 1})
    return Panel(title=f"on {name}", figure=figure)


def _why_missing(data: ReportData) -> str:
    strategy = next((run["strategy"] for run in data.run.to_pylist()), None)
    if strategy not in (None, "influence"):
        return f"The selection strategy “{strategy}” computes no influence scores."
    if any(stage["prompts_scored"] for stage in data.stages.to_pylist()):
        return "No prompt of the pool has a gradient: every group was all right or all wrong."
    return "No stage has been scored yet."


def _sets(rows: list[Row]) -> list[str]:
    return sorted({row["validation_set"] for row in rows})


def _of_set(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["validation_set"] == name]
