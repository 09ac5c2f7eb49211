"""What a rollout was worth: p(1-p) by training step, and how many prompts carried the updates of a stage."""

from __future__ import annotations

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import (
    INK,
    MIXED,
    PALETTE,
    STEP_TITLE,
    Panel,
    Section,
    bare_figure,
    by_step,
    mark_stages,
    mode_of,
)


def information(data: ReportData) -> Section:
    return Section("What the rollouts were worth", [_per_rollout(data), _effective_prompts(data)])


def _per_rollout(data: ReportData) -> Panel:
    title = "Information per rollout"
    found = {(row["stage"], row["step"]): row["information"] for row in data.information.to_pylist()}
    steps = [(row["stage"], row["step"]) for row in data.train_steps.to_pylist()]
    if not found.keys() & set(steps):
        return Panel(title, missing="No training step has rolled out a prompt yet.")
    figure = bare_figure(x_title=STEP_TITLE, y_title="Σ p(1−p) / n")
    figure.add_scatter(
        name="trained on",
        **by_step([found.get(step) for step in steps]),
        mode=mode_of(steps),
        line={"color": PALETTE[0], "width": 2},
        hovertemplate="step %{x}: %{y:.3f}",
    )
    pool = found.get((0, 0))
    if pool is not None:
        figure.add_hline(y=pool, line={"color": INK, "width": 1, "dash": "dash"})
        figure.add_annotation(
            text="the pool, offline",
            x=1,
            xref="paper",
            y=pool,
            xanchor="right",
            yanchor="bottom",
            showarrow=False,
            bgcolor="rgba(255,255,255,0.75)",
            font={"size": 11, "color": INK},
        )
    figure.update_yaxes(range=[0, 0.27])
    mark_stages(figure, [stage for stage, _ in steps])
    caption = (
        "p(1−p) of a prompt's pass rate p in the step, averaged over the graded rollouts n: 0.25 where half of the "
        "completions are right, 0 where all or none are. Look for a line above that of the pool, which is what "
        "drawing at random would have begun with."
    )
    return Panel(title, caption, figure)


def _effective_prompts(data: ReportData) -> Panel:
    title = "Effective prompts by stage"
    rows = [row for row in data.stages.to_pylist() if row["prompts_rolled_out"]]
    if not rows:
        return Panel(title, missing="No training step has rolled out a prompt yet.")
    figure = bare_figure(x_title="stage", y_title="prompts")
    for column, name, shade in (
        ("prompts_selected", "selected", "#c4ccd4"),
        ("prompts_rolled_out", "rolled out", MIXED),
        ("prompts_with_signal", "with signal", "#1f5c8c"),
        ("prompts_effective", "effective", PALETTE[1]),
    ):
        figure.add_bar(
            name=name,
            x=[str(row["stage"]) for row in rows],
            y=[row[column] for row in rows],
            marker={"color": shade},
            hovertemplate="stage %{x}: %{y:,.3~r}",
        )
    figure.update_layout(barmode="group", bargap=0.3)
    figure.update_xaxes(type="category")
    caption = (
        "With signal: different prompts whose rewards differed at least once. Effective: exp(−Σ s ln s), s a prompt's "
        "share of the stage's groups with signal, so as many as if all had taught equally often. Look for the two to "
        "be near each other; a few prompts that do all the teaching will be learnt by heart."
    )
    return Panel(title, caption, figure)
