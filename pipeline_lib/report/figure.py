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
HEALTHY = "#3a7d44"
PALETTE = ("#0b5fa5", "#d55e00", "#009e73", "#a6559d", "#b8860b", "#4aa3df", "#7a5c3e", "#444b54")

STEP_TITLE = "training step of the run"
MAX_MARKED_STEPS = 60
"""Curves with more points than this are drawn without markers."""
MAX_NAMED_STAGES = 6
"""Where there are more, their numbers alone have room beside each other on a phone."""


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


def by_step(values: Sequence[float | None]) -> Row:
    """A trace's values by training step: no list of the steps, and no more digits than are seen, for a small page."""
    return {"x0": 1, "dx": 1, "y": [float(f"{v:.5g}") if isinstance(v, float) else v for v in values]}


def mode_of(steps: Sequence[object]) -> str:
    return "lines+markers" if len(steps) <= MAX_MARKED_STEPS else "lines"


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
    word = "stage " if len(set(stages)) <= MAX_NAMED_STAGES else ""
    for position, stage in enumerate(stages, start=1):
        if position == 1 or stage != stages[position - 2]:
            if position > 1:
                figure.add_vline(x=position - 0.5, line={"color": INK, "width": 1, "dash": "dot"})
            figure.add_annotation(
                text=f"{word}{stage}",
                x=position - 0.5,
                y=1,
                yref="paper",
                xanchor="left",
                yanchor="bottom",
                showarrow=False,
                font={"size": 11, "color": FAINT},
            )


def draw_band(figure: go.Figure, low: float, high: float, text: str) -> None:
    """Shade the values from `low` to `high` and name them at the right edge."""
    figure.add_hrect(y0=low, y1=high, fillcolor=HEALTHY, opacity=0.13, line_width=0, layer="above")
    for edge in (low, high):
        figure.add_hline(y=edge, line={"color": INK, "width": 1, "dash": "dash"})
    figure.add_annotation(
        text=text,
        x=1,
        xref="paper",
        y=high,
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        bgcolor="rgba(255,255,255,0.75)",
        font={"size": 11, "color": INK},
    )
