"""Where the prompts went: an alluvial chart between all right, mixed and all wrong over the stages."""

from __future__ import annotations

from collections import defaultdict

import plotly.graph_objects as go

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import MIXED, RIGHT, WRONG, Panel, Row, Section, bare_figure

OUTCOMES = {
    "R": ("all right", RIGHT),
    "M": ("mixed", MIXED),
    "W": ("all wrong", WRONG),
    "-": ("not seen", "#aab4be"),
}
"""Word and colour by letter, in the order from top to bottom."""
FAINT = "66"
"""How opaque a flow is, behind its colour."""
GAP = 0.04
"""Between the outcomes of a stage, as a share of the height."""
MAX_NAMED_COLUMNS = 4
"""Where there are more stages, only the first and the last have room for words."""


def outcome_paths(data: ReportData) -> Section:
    links = data.paths.to_pylist()
    title = "Which way the prompts went"
    if not links:
        nothing = "No training stage has rolled a prompt out yet, so no prompt has gone anywhere."
        return Section(title, [Panel("Paths", missing=nothing)])
    caption = (
        "The pool offline, then by the last rollouts that a stage made of a prompt: all of them right, some, none. "
        "“Not seen” was not selected, or skipped. Look for all wrong flowing into mixed, and mixed into all right; "
        "what flows back was forgotten."
    )
    return Section(title, [Panel("Outcome of each prompt from stage to stage", caption, _alluvial(links))])


def node_sizes(links: list[Row]) -> dict[tuple[int, str], int]:
    """Prompts by stage and outcome. Every prompt has an outcome at every stage."""
    sizes: dict[tuple[int, str], int] = defaultdict(int)
    first = min(link["stage"] for link in links)
    for link in links:
        sizes[link["next_stage"], link["next_outcome"]] += link["n_prompts"]
        if link["stage"] == first:
            sizes[first, link["outcome"]] += link["n_prompts"]
    return dict(sizes)


def _alluvial(links: list[Row]) -> go.Figure:
    sizes = node_sizes(links)
    stages = sorted({stage for stage, _ in sizes})
    nodes = [(stage, letter) for stage in stages for letter in OUTCOMES if (stage, letter) in sizes]
    place = {node: i for i, node in enumerate(nodes)}
    named = {stages[0], stages[-1]} if len(stages) > MAX_NAMED_COLUMNS else set(stages)
    along = {stage: i / (len(stages) - 1) for i, stage in enumerate(stages)}
    figure = bare_figure(x_title="", y_title="", height=420)
    figure.add_sankey(
        arrangement="fixed",
        node={
            "label": [
                f"{OUTCOMES[letter][0]} {sizes[stage, letter]:,}" if stage in named else f"{sizes[stage, letter]:,}"
                for stage, letter in nodes
            ],
            "color": [OUTCOMES[letter][1] for _, letter in nodes],
            "x": [max(0.001, min(0.999, along[stage])) for stage, _ in nodes],  # plotly takes 0 and 1 for not given
            "y": _middles(nodes, sizes),
            "pad": 4,
            "thickness": 14,
            "line": {"width": 0},
            "hovertemplate": "%{label}<extra></extra>",
        },
        link={
            "source": [place[link["stage"], link["outcome"]] for link in links],
            "target": [place[link["next_stage"], link["next_outcome"]] for link in links],
            "value": [link["n_prompts"] for link in links],
            "color": [OUTCOMES[link["outcome"]][1] + FAINT for link in links],
            "hovertemplate": "%{source.label} → %{target.label}: %{value:,} prompts<extra></extra>",
        },
    )
    for stage in stages:
        figure.add_annotation(
            text="pool" if stage == 0 else f"stage {stage}" if stage in named else str(stage),
            x=along[stage],
            y=1,
            xref="paper",
            yref="paper",
            xanchor={0.0: "left", 1.0: "right"}.get(along[stage], "center"),
            yanchor="bottom",
            yshift=4,
            showarrow=False,
        )
    figure.update_layout(margin={"l": 12, "r": 12, "t": 32, "b": 12})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _middles(nodes: list[tuple[int, str]], sizes: dict[tuple[int, str], int]) -> list[float]:
    """Height of the middle of each node, from 0 at the top: outcomes in one order, with a gap between them."""
    middles: list[float] = []
    for stage in dict.fromkeys(stage for stage, _ in nodes):
        column = [sizes[node] for node in nodes if node[0] == stage]
        scale = (1 - GAP * (len(OUTCOMES) - 1)) / sum(column)
        top = 0.0
        for size in column:
            middles.append(max(0.001, top + size * scale / 2))
            top += size * scale + GAP
    return middles
