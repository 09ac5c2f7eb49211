"""How hard the prompts are: pass rates over the stages, zero-variance groups over the training steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    FAINT,
    INK,
    MIXED,
    RIGHT,
    WRONG,
    Panel,
    Section,
    bare_figure,
    mark_stages,
)

# Upper edge, name, colour. Only 0 and 1 are zero-variance, so they stand alone.
BUCKETS = (
    (0.0, "0%", WRONG),
    (0.25, "≤25%", "#d6e6f3"),
    (0.5, "≤50%", "#9ec5e3"),
    (0.75, "≤75%", MIXED),
    (0.9999, "&lt;100%", "#1f5c8c"),
    (1.0, "100%", RIGHT),
)
HEALTHY_ZERO_VARIANCE = (0.2, 0.4)


def count_by_bucket(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Prompts in each of BUCKETS; the rows have `pass_rate` and `n_prompts`."""
    counts = [0] * len(BUCKETS)
    for row in rows:
        counts[next(i for i, (edge, _, _) in enumerate(BUCKETS) if row["pass_rate"] <= edge)] += row["n_prompts"]
    return counts


def pass_rate_distribution(data: ReportData) -> Section:
    rows = data.pass_rates.to_pylist()
    title = "Difficulty over the stages"
    if not rows:
        return Section(title, [Panel("Pass rates", missing="No prompt has been rolled out yet.")])
    stages = sorted({row["stage"] for row in rows})
    names = ["pool" if stage == 0 else f"stage {stage}" for stage in stages]
    counts = {stage: count_by_bucket(row for row in rows if row["stage"] == stage) for stage in stages}
    figure = bare_figure(x_title="share of prompts", y_title="", height=150 + 44 * len(stages))
    for index, (_, label, shade) in enumerate(BUCKETS):
        figure.add_bar(
            name=label,
            orientation="h",
            y=names,
            x=[counts[stage][index] / sum(counts[stage]) for stage in stages],
            customdata=[counts[stage][index] for stage in stages],
            hovertemplate="%{y}: %{customdata} prompts (%{x:.0%})",
            marker={"color": shade, "line": {"color": "white", "width": 1}},
        )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    caption = (
        "The pool offline, then what each stage trained on. Look for stages that are mostly blue: what is "
        "never right or always right teaches nothing, and a good selection holds less of it than the pool."
    )
    return Section(title, [Panel("Pass rate by prompt", caption, figure)])


def zero_variance(data: ReportData) -> Section:
    rows = data.train_steps.to_pylist()
    title = "Groups that teach nothing"
    if not rows:
        return Section(title, [Panel("Zero-variance groups", missing="No training step has finished yet.")])
    figure = bare_figure(x_title="training step of the run", y_title="rolled-out prompts", height=340)
    steps = list(range(1, len(rows) + 1))
    totals = [max(row["solved_all"] + row["solved_none"] + row["solved_some"], 1) for row in rows]
    # Bars without gaps rather than an area, which has no width when there is one step.
    for column, label, shade in (
        ("solved_none", "all wrong", WRONG),
        ("solved_all", "all right", RIGHT),
        ("solved_some", "mixed", "#c9dff0"),
    ):
        figure.add_bar(
            name=label,
            x=steps,
            y=[row[column] / total for row, total in zip(rows, totals, strict=True)],
            marker={"color": shade, "line": {"width": 0}},
            hovertemplate="step %{x}: %{y:.0%}",
        )
    for edge in HEALTHY_ZERO_VARIANCE:
        figure.add_hline(y=edge, line={"color": INK, "width": 1, "dash": "dash"})
    figure.add_annotation(
        text="healthy: 20–40%",
        x=1,
        xref="paper",
        y=HEALTHY_ZERO_VARIANCE[1],
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        bgcolor="rgba(255,255,255,0.75)",
        font={"size": 11, "color": FAINT},
    )
    figure.update_layout(barmode="stack", bargap=0)
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for all wrong and all right together to end between the dashed lines, 20–40% of the rolled-out "
        "prompts: above, rollouts are wasted; below, hardly any skipped prompt is tried again."
    )
    return Section(title, [Panel("Zero-variance groups by training step", caption, figure)])
