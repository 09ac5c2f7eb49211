"""Where the time went: by phase of a training step, and by step of the pipeline."""

from __future__ import annotations

from collections import defaultdict

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    MAX_MARKED_STEPS,
    MIXED,
    PALETTE,
    STEP_TITLE,
    Panel,
    Section,
    bare_figure,
    by_step,
    mark_stages,
)

REST = "rest"
PHASES = (
    ("rollout_time", "rollout", MIXED),
    ("verify_time", "verify", PALETTE[2]),
    ("logprob_time", "reference log-probs", PALETTE[3]),
    ("update_time", "update", PALETTE[1]),
)
GROUPS = {
    "prepare": ("policy", "ingest"),
    "rollouts": ("rollouts_train", "rollouts_validation", "recollect_train", "recollect_validation"),
    "drift": ("drift",),
    "score": ("score",),
    "select": ("similarity", "relevance", "select", "diagnose"),
    "train": ("train",),
    "evaluate": ("evaluate",),
}
"""Steps of the pipeline under one name."""


def times(data: ReportData) -> Section:
    return Section("Where the time went", [_by_pipeline_step(data), _by_training_step(data)])


def unit_of(seconds: float) -> tuple[float, str]:
    """How many seconds the unit has in which the longest is still above 1, and its name."""
    for length, name in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * length:
            return length, name
    return 1.0, "seconds"


def seconds_by_group(data: ReportData) -> dict[str, dict[int, float]]:
    """Group of steps -> stage -> seconds."""
    group_of = {step: group for group, steps in GROUPS.items() for step in steps}
    seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in data.times.to_pylist():
        seconds[group_of.get(row["step"], REST)][row["stage"]] += row["seconds"]
    return seconds


def _by_pipeline_step(data: ReportData) -> Panel:
    title = "By step of the pipeline"
    seconds = seconds_by_group(data)
    if not seconds:
        return Panel(title, missing="No step has finished yet.")
    stages = sorted({row["stage"] for row in data.times.to_pylist()})
    length, name = unit_of(max(sum(of[stage] for of in seconds.values()) for stage in stages))
    figure = bare_figure(x_title=name, y_title="", height=150 + 44 * len(stages))
    for index, group in enumerate(group for group in (*GROUPS, REST) if group in seconds):
        figure.add_bar(
            name=group,
            orientation="h",
            y=["before" if stage == 0 else f"stage {stage}" for stage in stages],
            x=[float(f"{seconds[group][stage] / length:.5g}") for stage in stages],
            marker={"color": PALETTE[index], "line": {"color": "white", "width": 1}},
            hovertemplate=f"%{{y}}: %{{x:,.3~r}} {name}",
        )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    caption = (
        "Of each step's last attempt: what a resumed step did before is not in it, and a step that another run had "
        "made counts whole. Look for training and rollouts to be the long parts."
    )
    return Panel(title, caption, figure)


def _by_training_step(data: ReportData) -> Panel:
    title = "By phase of a training step"
    rows = data.train_steps.to_pylist()
    if not any(row["step_time"] for row in rows):
        return Panel(title, missing="No training step has been timed yet.")
    spent = [[row[column] or 0.0 for column, _, _ in PHASES] for row in rows]
    rest = [max(row["step_time"] - sum(parts), 0.0) for row, parts in zip(rows, spent, strict=True)]
    figure = bare_figure(x_title=STEP_TITLE, y_title="seconds")
    columns = [*zip(*spent, strict=True), rest]
    for (name, shade), values in zip([(p[1], p[2]) for p in PHASES] + [(REST, "#c4ccd4")], columns, strict=True):
        if any(values):
            figure.add_bar(
                name=name,
                **by_step(values),
                marker={"color": shade, "line": {"width": 0}},
                hovertemplate="step %{x}: %{y:,.3~r} s",
            )
    figure.update_layout(barmode="stack", bargap=0 if len(rows) > MAX_MARKED_STEPS else 0.15)
    mark_stages(figure, [row["stage"] for row in rows])
    caption = (
        "Look for rollout to shrink as the sampler skips more; a growing verify part is a verifier that waits for "
        "its timeouts."
    )
    return Panel(title, caption, figure)
