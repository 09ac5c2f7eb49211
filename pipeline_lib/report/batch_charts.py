"""How the batches were filled: prompts proposed, rolled out and trained on, and how often a step had to refill."""

from __future__ import annotations

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    MAX_MARKED_STEPS,
    MIXED,
    PALETTE,
    STEP_TITLE,
    Panel,
    Row,
    Section,
    bare_figure,
    by_step,
    mark_stages,
    mode_of,
)

_COUNTS = (
    ("prompts_proposed", "proposed", "#9aa5b0", "solid"),
    ("prompts_rolled_out", "rolled out", MIXED, "solid"),
    ("groups_trained", "trained on", PALETTE[1], "solid"),
    ("groups_carried", "carried over", PALETTE[3], "dot"),
)
MAX_TICKS = 8
"""Up to so many refills each has a tick, and none stands between two."""


def batches(data: ReportData) -> Section:
    rows = data.train_steps.to_pylist()
    title = "Batch size and refills"
    if not rows:
        return Section(title, [Panel("Batches", missing="No training step has finished yet.")])
    return Section(title, [_sizes(rows), _refills(rows)])


def _sizes(rows: list[Row]) -> Panel:
    figure = bare_figure(x_title=STEP_TITLE, y_title="prompts")
    for column, name, shade, dash in _COUNTS:
        figure.add_scatter(
            name=name,
            **by_step([row[column] for row in rows]),
            mode=mode_of(rows),
            line={"color": shade, "width": 2, "dash": dash},
            marker={"size": 5},
        )
    figure.update_yaxes(rangemode="tozero")
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for a level line of groups trained on: dips are batches that no more prompts could fill. The gap to the "
        "rolled-out ones is what dropping zero-variance groups costs; what is carried over goes into the next step."
    )
    return Panel("Batch size by training step", caption, figure)


def _refills(rows: list[Row]) -> Panel:
    title = "Refills by training step"
    if all(row["generation_rounds"] <= 1 for row in rows):
        return Panel(title, missing="One round of rollouts filled the batch of every step.")
    figure = bare_figure(x_title=STEP_TITLE, y_title="rounds after the first")
    figure.add_bar(
        name="refills",
        **by_step([max(row["generation_rounds"] - 1, 0) for row in rows]),
        marker={"color": PALETTE[0], "line": {"width": 0}},
    )
    figure.update_layout(showlegend=False, bargap=0 if len(rows) > MAX_MARKED_STEPS else 0.15)
    most = max(row["generation_rounds"] for row in rows) - 1
    figure.update_yaxes(rangemode="tozero", dtick=1 if most < MAX_TICKS else None)
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for steps that need none or one: each round waits for its slowest completion. Many say that the first "
        "rollout batch is too small for the share of groups that are dropped."
    )
    return Panel(title, caption, figure)
