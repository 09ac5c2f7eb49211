"""The page itself: figures and table rows put into report.html.j2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2
from markupsafe import Markup

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.diagnosis import diagnosis
from pipeline_lib.report.difficulty_charts import pass_rate_distribution, zero_variance
from pipeline_lib.report.evaluation_charts import evaluation_curves
from pipeline_lib.report.figure import Panel, Section
from pipeline_lib.report.headline import headline
from pipeline_lib.report.influence_charts import influence_by_pass_rate, influence_distribution
from pipeline_lib.report.selection_charts import selection_shares
from pipeline_lib.report.training_charts import rollouts, training_curves

_SECTIONS: tuple[Callable[[ReportData], Section], ...] = (
    evaluation_curves,
    pass_rate_distribution,
    zero_variance,
    rollouts,
    training_curves,
    influence_distribution,
    influence_by_pass_rate,
    selection_shares,
)


def render_report(data: ReportData) -> str:
    """One HTML page that needs nothing from the network."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shortened"] = _shortened
    draw = _Drawer()
    ranked = data.ranked_prompts.to_pylist()
    return environment.get_template("report.html.j2").render(
        run=data.run.to_pylist()[0],
        headline=headline(data),
        sections=[
            (section, [(panel, draw(panel)) for panel in section.panels])
            for section in (make(data) for make in _SECTIONS)
        ],
        diagnosis=diagnosis(data),
        best=ranked[:25],
        worst=ranked[25:],
        rejects=data.rejects.to_pylist(),
        samples=data.samples.to_pylist(),
    )


class _Drawer:
    """Turns figures into HTML; the first one brings plotly.js along."""

    def __init__(self) -> None:
        self._drawn = 0

    def __call__(self, panel: Panel) -> Markup:
        if panel.figure is None:
            return Markup()
        self._drawn += 1
        # plotly escapes <, > and / in the JSON that it writes, so text from data cannot end the script.
        return Markup(
            panel.figure.to_html(
                full_html=False,
                include_plotlyjs=self._drawn == 1,
                include_mathjax=False,
                div_id=f"chart-{self._drawn}",
                config={"displayModeBar": False},
            )
        )


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
