"""What the sampler let through: zero-variance groups and skipped prompts, beside the bands that are called healthy."""

from __future__ import annotations

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    INK,
    PALETTE,
    RIGHT,
    STEP_TITLE,
    WRONG,
    Panel,
    Row,
    Section,
    bare_figure,
    by_step,
    draw_band,
    mark_stages,
    mode_of,
)

HEALTHY_ZERO_VARIANCE = (0.2, 0.4)
HEALTHY_SKIP_RATE = (0.2, 0.6)
NOT_YET = "No training step has finished yet."
WHERE_FROM = (
    "The bands are a rule of thumb, found in articles on GRESO and not measured here; the released code of GRESO "
    "(arXiv 2506.02177) steers towards 25% zero variance."
)


def waste(data: ReportData) -> Section:
    rows = data.train_steps.to_pylist()
    title = "Groups that teach nothing"
    if not rows:
        return Section(title, [Panel("Zero-variance groups", missing=NOT_YET)])
    return Section(title, [_zero_variance(rows), _skip_rate(rows)], WHERE_FROM)


def _zero_variance(rows: list[Row]) -> Panel:
    figure = bare_figure(x_title=STEP_TITLE, y_title="rolled-out prompts", height=340)
    totals = [max(row["solved_all"] + row["solved_none"] + row["solved_some"], 1) for row in rows]
    # Bars without gaps rather than an area, which has no width when there is one step.
    for column, label, shade in (
        ("solved_none", "all wrong", WRONG),
        ("solved_all", "all right", RIGHT),
        ("solved_some", "mixed", "#c9dff0"),
    ):
        figure.add_bar(
            name=label,
            **by_step([row[column] / total for row, total in zip(rows, totals, strict=True)]),
            marker={"color": shade, "line": {"width": 0}},
            hovertemplate="step %{x}: %{y:.0%}",
        )
    draw_band(figure, *HEALTHY_ZERO_VARIANCE, "healthy: 20–40%")
    figure.update_layout(barmode="stack", bargap=0)
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for all wrong and all right together to end between the dashed lines, 20–40% of the rolled-out "
        "prompts: above, rollouts are wasted; below, hardly any skipped prompt is tried again."
    )
    return Panel("Zero-variance groups by training step", caption, figure)


def _skip_rate(rows: list[Row]) -> Panel:
    title = "Skip rate by training step"
    if not any(row["prompts_skipped"] for row in rows):
        return Panel(title, missing="The sampler skipped no prompt: it rolled out all that it was offered.")
    figure = bare_figure(x_title=STEP_TITLE, y_title="skipped of the proposed prompts", height=340)
    figure.add_scatter(
        name="skip rate",
        **by_step([_share(row["prompts_skipped"], row["prompts_proposed"]) for row in rows]),
        mode=mode_of(rows),
        line={"color": PALETTE[0], "width": 2},
        hovertemplate="step %{x}: %{y:.0%}",
    )
    low, high = HEALTHY_SKIP_RATE
    figure.add_scatter(
        name="rising with the run",
        x=[1, max(len(rows), 2)],
        y=[low, high],
        mode="lines",
        line={"color": INK, "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
    draw_band(figure, low, high, "healthy: from about 20% to about 60%")
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for a rise from about 20% to about 60%, as prompts gain a history: far below it the sampler spares "
        "little, far above it the selection is used up, or prompts are given up for good."
    )
    return Panel(title, caption, figure)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
