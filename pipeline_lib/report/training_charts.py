"""What training cost and how it went: rollouts made and skipped, reward, KL, entropy, gradient norm."""

from __future__ import annotations

from itertools import accumulate

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    MAX_MARKED_STEPS,
    PALETTE,
    STEP_TITLE,
    Panel,
    Row,
    Section,
    bare_figure,
    by_step,
    colour,
    mark_stages,
    mode_of,
)

_MADE, _SKIPPED = PALETTE[0], "#b9c2cb"
_NOT_YET = "No training step has finished yet."

_CURVES = (
    (
        "reward",
        "Reward",
        "Look for a steady rise; a jump at a stage boundary is the new selection.",
    ),
    (
        "kl",
        "KL to the stage's first policy",
        "Look for slow growth; a sudden climb is a policy that runs away.",
    ),
    ("entropy", "Entropy", "Look for a slow decline; a collapse towards 0 ends exploration."),
    (
        "grad_norm",
        "Gradient norm",
        "Look for a flat band; spikes point to bad batches or too high a learning rate.",
    ),
)


def rollouts(data: ReportData) -> Section:
    rows = data.train_steps.to_pylist()
    title = "Rollouts made and skipped"
    if not rows:
        return Section(title, [Panel("Rollouts", missing=_NOT_YET)])
    made = [row["rollouts"] for row in rows]
    skipped = [row["rollouts_skipped"] or 0 for row in rows]
    by_training_step = bare_figure(x_title=STEP_TITLE, y_title="rollouts")
    by_training_step.add_bar(name="made", **by_step(made), marker={"color": _MADE, "line": {"width": 0}})
    by_training_step.add_bar(name="skipped", **by_step(skipped), marker={"color": _SKIPPED, "line": {"width": 0}})
    by_training_step.update_layout(barmode="stack", bargap=0 if len(rows) > MAX_MARKED_STEPS else 0.15)
    in_all = bare_figure(x_title=STEP_TITLE, y_title="rollouts so far")
    for name, values, shade in (("made", made, _MADE), ("skipped", skipped, "#7d8894")):
        in_all.add_scatter(
            name=name,
            **by_step(list(accumulate(values))),
            mode=mode_of(rows),
            line={"color": shade, "width": 2},
        )
    in_all.update_yaxes(rangemode="tozero")
    stages = [row["stage"] for row in rows]
    mark_stages(by_training_step, stages)
    mark_stages(in_all, stages)
    return Section(
        title,
        [
            Panel(
                "By training step",
                "Look for the skipped part to grow after the first epoch, once prompts have a history.",
                by_training_step,
            ),
            Panel(
                "Cumulative",
                "Look for the made line to flatten as the skipped one rises: that is compute saved.",
                in_all,
            ),
        ],
    )


def training_curves(data: ReportData) -> Section:
    rows = data.train_steps.to_pylist()
    panels = [_curve(rows, *curve, colour(index)) for index, curve in enumerate(_CURVES)]
    return Section("Training curves", panels if rows else [Panel("Training", missing=_NOT_YET)])


def _curve(rows: list[Row], column: str, title: str, caption: str, shade: str) -> Panel:
    values = [row[column] for row in rows]
    if all(value is None for value in values):
        return Panel(title, missing="Not recorded in this run.")
    figure = bare_figure(x_title=STEP_TITLE, y_title="", height=240)
    figure.add_scatter(
        name=title,
        **by_step(values),
        mode=mode_of(rows),
        line={"color": shade, "width": 2},
        marker={"size": 5},
    )
    figure.update_layout(showlegend=False, margin={"t": 22})
    mark_stages(figure, [row["stage"] for row in rows])
    return Panel(title, caption, figure)
