"""What was selected, by kind of prompt, against the pool's share."""

from __future__ import annotations

from collections import defaultdict

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import Panel, Row, Section, bare_figure, colour, plain

MAX_KINDS = 12
"""The largest kinds are drawn; the rest are one bar."""


def selection_shares(data: ReportData) -> Section:
    rows = data.selection_shares.to_pylist()
    title = "What was selected"
    if not any(row["stage"] > 0 for row in rows):
        nothing = Panel("Selected prompts by kind", missing="No stage has selected its prompts yet.")
        return Section(title, [nothing])
    counts = _counts(rows)
    kinds = sorted(counts[0], key=lambda kind: -counts[0][kind])
    shown = kinds if len(kinds) <= MAX_KINDS else kinds[: MAX_KINDS - 1]
    figure = bare_figure(
        x_title="share of prompts", y_title="", height=140 + (len(shown) + 1) * (16 + 14 * len(counts))
    )
    for index, stage in enumerate(sorted(counts)):
        of_stage = counts[stage]
        total = sum(of_stage.values())
        shares = {plain(kind): of_stage[kind] / total for kind in shown}
        if len(shown) < len(kinds):
            shares["all other kinds"] = 1 - sum(shares.values())
        figure.add_bar(
            name="pool" if stage == 0 else f"stage {stage}",
            orientation="h",
            y=list(shares),
            x=list(shares.values()),
            marker={"color": "#b9c2cb" if stage == 0 else colour(index - 1)},
            hovertemplate="%{y}: %{x:.1%}",
        )
    figure.update_layout(barmode="group", bargap=0.3)
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    caption = (
        "Look for kinds whose bars leave the grey one: they are what the selection favours or avoids; "
        "a stage made of one kind alone is a warning."
    )
    return Section(title, [Panel("Selected prompts by kind, against the pool", caption, figure)])


def _counts(rows: list[Row]) -> dict[int, dict[str, int]]:
    """Prompts by stage and kind. The data source is named only where there are several."""
    one_source = len({row["data_source"] for row in rows}) == 1
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        source, kind = row["data_source"], row["kind"]
        label = source if kind is None else kind if one_source else f"{source} · {kind}"
        counts[row["stage"]][label] += row["n_prompts"]
    return counts
