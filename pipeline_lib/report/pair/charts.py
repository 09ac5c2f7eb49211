"""Two runs over each other: evaluations, their paired differences, selections, difficulty."""

from __future__ import annotations

from dataclasses import replace

from pipeline_lib.report.difficulty_charts import difficulty_map
from pipeline_lib.report.figure import INK, Panel, Row, Section, bare_figure, colour, plain
from pipeline_lib.report.pair.data import PairData
from pipeline_lib.report.pair.sides import SHADES


def evaluations_of_both(pair: PairData) -> Section:
    title = "Held-out evaluation"
    both = [side.evaluations.to_pylist() for side in pair.sides]
    sets = sorted({row["evaluation_set"] for rows in both for row in rows})
    if not sets:
        return Section(title, [Panel("Evaluation", missing="No evaluation of either run has finished yet.")])
    return Section(
        title,
        [_evaluation(pair, name, [[r for r in rows if r["evaluation_set"] == name] for rows in both]) for name in sets],
        "Error bars are one standard error of each run by itself; for the difference look at the next section, "
        "which compares prompt by prompt.",
    )


def _evaluation(pair: PairData, name: str, both: list[list[Row]]) -> Panel:
    figure = bare_figure(x_title="stage (0 is before training)", y_title="pass rate")
    for run, rows, shade in zip(pair.names, both, SHADES, strict=True):
        for metric, k in sorted({(row["metric"], row["k"]) for row in rows} - {("pass", 1)}):
            curve = [row for row in rows if (row["metric"], row["k"]) == (metric, k)]
            figure.add_scatter(
                name=f"{plain(run)}, {metric}@{k}",
                x=[row["stage"] for row in curve],
                y=[row["value"] for row in curve],
                error_y={"array": [row["standard_error"] or 0 for row in curve], "thickness": 1.2, "width": 4},
                mode="lines+markers",
                line={
                    "color": shade,
                    "width": 2.5 if metric == "avg" else 1.5,
                    "dash": "solid" if metric == "avg" else "dot",
                },
                hovertemplate="stage %{x}: %{y:.1%}",
            )
    figure.update_xaxes(dtick=1, range=[-0.3, max(row["stage"] for rows in both for row in rows) + 0.3])
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return Panel(name, figure=figure)


def paired_differences(pair: PairData) -> Section:
    rows = [row for row in pair.differences.to_pylist() if row["stage"] == row["other_stage"]]
    ours, theirs = pair.names
    title = f"Difference in pass rate: {theirs} less {ours}"
    if not rows:
        nothing = "No stage at which both runs were evaluated on the same prompts."
        return Section(title, [Panel("Paired difference", missing=nothing)])
    figure = bare_figure(x_title="stage (0 is before training)", y_title="difference in pass rate", height=340)
    for index, name in enumerate(sorted({row["evaluation_set"] for row in rows})):
        curve = [row for row in rows if row["evaluation_set"] == name]
        figure.add_scatter(
            name=plain(name),
            x=[row["stage"] for row in curve],
            y=[row["difference"] for row in curve],
            error_y={"array": [row["standard_error"] or 0 for row in curve], "thickness": 1.2, "width": 4},
            mode="lines+markers",
            line={"color": colour(index + 2), "width": 2},
            hovertemplate="stage %{x}: %{y:+.1%}",
        )
    figure.add_hline(y=0, line={"color": INK, "width": 1})
    figure.update_xaxes(dtick=1, range=[-0.3, max(row["stage"] for row in rows) + 0.3])
    figure.update_yaxes(tickformat="+.0%")
    caption = (
        "Mean over the prompts that both were evaluated on, ± one standard error of that mean (standard deviation of "
        "the prompts' differences over √n). What makes a prompt hard for both runs cancels out, so the error is mostly "
        "smaller than that of two runs apart. Look for a difference of at least two errors."
    )
    return Section(title, [Panel("Paired by prompt", caption, figure)])


def selected_by_both(pair: PairData) -> Section:
    rows = [row for row in pair.overlap.to_pylist() if row["n_selected"] and row["n_other_selected"]]
    title = "Selected by both"
    if not rows:
        return Section(title, [Panel("Overlap", missing="No stage at which both runs have selected prompts.")])
    figure = bare_figure(x_title="stage", y_title="Jaccard index")
    stages = [str(row["stage"]) for row in rows]
    figure.add_bar(
        name="selected by both, of those selected by either",
        x=stages,
        y=[jaccard(row) for row in rows],
        customdata=[[row["n_both_selected"], row["n_selected"], row["n_other_selected"]] for row in rows],
        marker={"color": colour(3)},
        hovertemplate="stage %{x}: %{y:.2f}; %{customdata[0]:,} of %{customdata[1]:,} and %{customdata[2]:,}",
    )
    figure.add_scatter(
        name="two random draws of these sizes",
        x=stages,
        y=[chance_jaccard(row) for row in rows],
        mode="markers",
        marker={"symbol": "line-ew", "size": 34, "line": {"color": INK, "width": 2}},
        hovertemplate="by chance %{y:.2f}",
    )
    figure.update_layout(bargap=0.5)
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[0, 1])
    caption = (
        "1 where both runs trained on the same prompts. Look for the bar against the mark: at the mark, the two "
        "selections have nothing to do with each other. Pools that differ have no mark."
    )
    return Section(title, [Panel("Overlap of the selections by stage", caption, figure)])


def jaccard(row: Row) -> float:
    both: int = row["n_both_selected"]
    return both / (row["n_selected"] + row["n_other_selected"] - both)


def chance_jaccard(row: Row) -> float | None:
    """Of two draws from one pool that know nothing of each other, at the mean of what both have."""
    if not row["n_pool"] == row["n_other_pool"] == row["n_both_pool"]:
        return None
    both: float = row["n_selected"] * row["n_other_selected"] / row["n_pool"]
    return both / (row["n_selected"] + row["n_other_selected"] - both)


def difficulty_of_both(pair: PairData) -> Section:
    maps = [difficulty_map(side, name) for side, name in zip(pair.sides, pair.names, strict=True)]
    caption = next((panel.caption for panel in maps if panel.caption), "")
    return Section("Difficulty side by side", [replace(panel, caption="") for panel in maps], caption)
