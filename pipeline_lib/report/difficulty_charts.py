"""How hard the prompts are: the distribution of their pass rates over the stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import MIXED, RIGHT, WRONG, Panel, Section, bare_figure

MAX_LABELLED_STAGES = 8
# Upper edge, name, colour. Only 0 and 1 are zero-variance, so they stand alone.
BUCKETS = (
    (0.0, "0%", WRONG),
    (0.25, "≤25%", "#d6e6f3"),
    (0.5, "≤50%", "#9ec5e3"),
    (0.75, "≤75%", MIXED),
    (0.9999, "&lt;100%", "#1f5c8c"),
    (1.0, "100%", RIGHT),
)
SHADES = ((0.0, "#ffffff"), (0.02, "#eef4f9"), (0.35, MIXED), (1.0, "#0a3559"))
"""By share of a stage's prompts; what is not empty is never white."""


def count_by_bucket(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Prompts in each of BUCKETS; the rows have `pass_rate` and `n_prompts`."""
    counts = [0] * len(BUCKETS)
    for row in rows:
        counts[next(i for i, (edge, _, _) in enumerate(BUCKETS) if row["pass_rate"] <= edge)] += row["n_prompts"]
    return counts


def pass_rate_distribution(data: ReportData) -> Section:
    return Section("Difficulty over the stages", [difficulty_map(data, "Pass rate by prompt")])


def difficulty_map(data: ReportData, title: str) -> Panel:
    """A heat map: a column a stage, a row a bucket of pass rates, the share of the stage's prompts as the shade."""
    rows = data.pass_rates.to_pylist()
    if not rows:
        return Panel(title, missing="No prompt has been rolled out yet.")
    stages = sorted({row["stage"] for row in rows})
    counts = [count_by_bucket(row for row in rows if row["stage"] == stage) for stage in stages]
    by_bucket = [[count[bucket] for count in counts] for bucket in range(len(BUCKETS))]
    figure = bare_figure(x_title="stage, and the prompts that it rolled out", y_title="pass rate", height=350)
    figure.add_heatmap(
        x=[f"{'pool' if stage == 0 else stage}<br>{sum(count):,}" for stage, count in zip(stages, counts, strict=True)],
        y=[label for _, label, _ in BUCKETS],
        z=[[n / sum(count) for n, count in zip(bucket, counts, strict=True)] for bucket in by_bucket],
        customdata=by_bucket,
        texttemplate="%{z:.0%}" if len(stages) <= MAX_LABELLED_STAGES else "",
        hovertemplate="%{customdata:,} prompts (%{z:.1%})<extra></extra>",
        colorscale=SHADES,
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.update_layout(margin={"t": 14}, showlegend=False)
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    caption = (
        "The pool offline, then what each stage trained on; a column adds up to 100%. Look for columns that are dark "
        "in the middle: what is never right or always right teaches nothing, and a good selection holds less of it "
        "than the pool."
    )
    return Panel(title, caption, figure)
