"""The page itself: figures and table rows put into report.html.j2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline_lib.report.batch_charts import batches
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.diagnosis import diagnosis
from pipeline_lib.report.difficulty_charts import pass_rate_distribution
from pipeline_lib.report.drift_charts import drift
from pipeline_lib.report.evaluation_charts import evaluation_curves
from pipeline_lib.report.figure import Panel, Section
from pipeline_lib.report.headline import headline
from pipeline_lib.report.influence_charts import influence_by_pass_rate, influence_distribution
from pipeline_lib.report.information_charts import information
from pipeline_lib.report.pair.charts import (
    difficulty_of_both,
    evaluations_of_both,
    paired_differences,
    selected_by_both,
)
from pipeline_lib.report.pair.config_difference import config_difference
from pipeline_lib.report.pair.cost import accuracy_for_cost, cost_to_accuracy
from pipeline_lib.report.pair.data import PairData
from pipeline_lib.report.path_charts import outcome_paths
from pipeline_lib.report.sampler_charts import waste
from pipeline_lib.report.selection_charts import selection_shares
from pipeline_lib.report.time_charts import times
from pipeline_lib.report.training_charts import rollouts, training_curves

_SECTIONS: tuple[Callable[[ReportData], Section], ...] = (
    evaluation_curves,
    pass_rate_distribution,
    outcome_paths,
    waste,
    information,
    rollouts,
    batches,
    training_curves,
    times,
    influence_distribution,
    influence_by_pass_rate,
    drift,
    selection_shares,
)
_PAIR_SECTIONS: tuple[Callable[[PairData], Section], ...] = (
    evaluations_of_both,
    paired_differences,
    accuracy_for_cost,
    selected_by_both,
    difficulty_of_both,
)


def render_report(data: ReportData) -> str:
    """One HTML page that needs nothing from the network."""
    ranked = data.ranked_prompts.to_pylist()
    completions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in data.completions.to_pylist():
        completions[row["prompt_id"]].append(row)
    return _render(
        "report.html.j2",
        run=data.run.to_pylist()[0],
        failures=data.failures.to_pylist(),
        headline=headline(data),
        sections=_drawn(make(data) for make in _SECTIONS),
        diagnosis=diagnosis(data),
        best=ranked[:25],
        worst=ranked[25:],
        completions=dict(completions),
        rejects=data.rejects.to_pylist(),
        samples=data.samples.to_pylist(),
    )


def render_pair(pair: PairData) -> str:
    """One HTML page that sets two runs side by side."""
    return _render(
        "pair.html.j2",
        names=pair.names,
        runs=[side.run.to_pylist()[0] for side in pair.sides],
        config=config_difference(pair),
        sections=_drawn(make(pair) for make in _PAIR_SECTIONS),
        differences=pair.differences.to_pylist(),
        costs=cost_to_accuracy(pair),
    )


def _render(template: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shortened"] = _shortened
    return environment.get_template(template).render(**values)


def _drawn(sections: Iterable[Section]) -> list[tuple[Section, list[tuple[Panel, Markup]]]]:
    draw = _Drawer()
    return [(section, [(panel, draw(panel)) for panel in section.panels]) for section in sections]


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
