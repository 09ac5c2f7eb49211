"""Evaluation curves: pass rate of each held-out set over the stages."""

from __future__ import annotations

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import Panel, Row, Section, bare_figure, colour


def evaluation_curves(data: ReportData) -> Section:
    rows = data.evaluations.to_pylist()
    sets = sorted({row["evaluation_set"] for row in rows})
    panels = [_panel(name, [row for row in rows if row["evaluation_set"] == name]) for name in sets]
    return Section(
        title="Held-out evaluation",
        caption="Look for a rise that is larger than its error bars (one standard error); "
        "a pass@k that falls while avg@k rises means that the policy narrows.",
        panels=panels or [Panel("Evaluation", missing="No evaluation has finished yet.")],
    )


def _panel(name: str, rows: list[Row]) -> Panel:
    figure = bare_figure(x_title="stage (0 is before training)", y_title="pass rate")
    # pass@1 is the same number as avg@k, and would be drawn on top of it.
    metrics = sorted({(row["metric"], row["k"]) for row in rows if (row["metric"], row["k"]) != ("pass", 1)})
    for index, (metric, k) in enumerate(metrics):
        curve = [row for row in rows if (row["metric"], row["k"]) == (metric, k)]
        figure.add_scatter(
            name=f"{metric}@{k}",
            x=[row["stage"] for row in curve],
            y=[row["value"] for row in curve],
            error_y={"array": [row["standard_error"] or 0 for row in curve], "thickness": 1.2, "width": 4},
            mode="lines+markers",
            line={
                "color": colour(index),
                "width": 2.5 if metric == "avg" else 1.5,
                "dash": "solid" if metric == "avg" else "dash",
            },
        )
    figure.update_xaxes(dtick=1, range=[-0.3, max(row["stage"] for row in rows) + 0.3])
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return Panel(title=f"{name} ({rows[0]['n_prompts']:,} prompts)", figure=figure)
