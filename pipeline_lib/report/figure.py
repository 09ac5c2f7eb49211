"""What all charts share: panels and sections, colours, the bare figure, the stage boundaries."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

Row = dict[str, Any]

INK, FAINT, GRID = "#1d2733", "#66727f", "#e6eaee"
RIGHT, MIXED, WRONG = "#009e73", "#4a90c4", "#d55e00"
"""All right, mixed, all wrong; told apart by colour-blind readers too."""
PALETTE = ("#0b5fa5", "#d55e00", "#009e73", "#a6559d", "#b8860b", "#4aa3df", "#7a5c3e", "#444b54")

MAX_MARKED_STEPS = 60
"""Curves with more points than this are drawn without markers."""


@dataclass(frozen=True)
class Panel:
    """A chart with its caption or, where there is nothing to draw, the words that say so."""

    title: str
    caption: str = ""
    figure: go.Figure | None = None
    missing: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    panels: Sequence[Panel]
    caption: str = ""


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def plain(text: str) -> str:
    """Text from data as a plotly label, which reads a little HTML; long ones would push the chart aside."""
    return html.escape(text if len(text) <= 40 else text[:39] + "…", quote=False)


def bare_figure(*, x_title: str, y_title: str, height: int = 300) -> go.Figure:
    axis: Row = {
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": FAINT,
        "ticks": "outside",
        "tickcolor": FAINT,
        "automargin": True,
        "title_standoff": 8,
        "title_font": {"size": 12, "color": FAINT},
    }
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 52, "r": 24, "t": 44, "b": 44},
        font={"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 12, "color": INK},
        paper_bgcolor="white",
        plot_bgcolor="white",
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.08,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        showlegend=True,
        hoverlabel={"bgcolor": "white"},
    )
    figure.update_xaxes(**axis, title_text=x_title)
    figure.update_yaxes(**axis, title_text=y_title)
    return figure


def mark_stages(figure: go.Figure, stages: Sequence[int]) -> None:
    """Draw the boundaries of the stages; `stages[i]` is the stage of training step i+1 of the run."""
    figure.update_xaxes(range=[0.5, len(stages) + 0.5])
    for position, stage in enumerate(stages, start=1):
        if position == 1 or stage != stages[position - 2]:
            if position > 1:
                figure.add_vline(x=position - 0.5, line={"color": INK, "width": 1, "dash": "dot"})
            figure.add_annotation(
                text=f"stage {stage}",
                x=position - 0.5,
                y=1,
                yref="paper",
                xanchor="left",
                yanchor="bottom",
                showarrow=False,
                font={"size": 11, "color": FAINT},
            )
