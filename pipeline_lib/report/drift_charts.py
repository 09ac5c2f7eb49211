"""How far the policy of each stage had left the rollouts that its prompts were scored with."""

from __future__ import annotations

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.figure import FAINT, INK, PALETTE, Panel, Row, Section, bare_figure

_CHARTS = (
    (
        "Drift, KL",
        "nats a token",
        (("kl_median", "median"), ("kl_p95", "95th percentile")),
        "max_kl",
        "KL of the behaviour policy from the policy that was scored. Look for growth from stage to stage: where it "
        "passes influence.max_kl, the prompts' rollouts say little of this policy.",
    ),
    (
        "Effective sample size, ESS",
        "share of the tokens",
        (("ess_median", "median"), ("ess_p05", "5th percentile")),
        "min_ess",
        "Share of a prompt's tokens that the ratios π/β leave in effect, (Σ w)² / (n Σ w²). Look for it to stay near "
        "1; below influence.min_ess a score rests on a few tokens.",
    ),
)


def drift(data: ReportData) -> Section:
    rows = [row for row in data.diagnoses.to_pylist() if not row["subject"] and row["value"] is not None]
    limits: Row = next(iter(data.run.to_pylist()), {})
    return Section(
        "Drift from the rollouts that were scored",
        [_panel(rows, limits, *chart) for chart in _CHARTS],
    )


def _panel(
    rows: list[Row], limits: Row, title: str, y_title: str, metrics: tuple[tuple[str, str], ...], limit: str, about: str
) -> Panel:
    stages = sorted({row["stage"] for row in rows if row["metric"] == metrics[0][0]})
    if not stages:
        return Panel(title, missing="Not measured: it is taken when a stage scores its prompts by influence.")
    figure = bare_figure(x_title="stage", y_title=y_title)
    for (metric, name), shade, dash in zip(metrics, PALETTE, ("solid", "dot"), strict=False):
        points = sorted((row["stage"], row["value"]) for row in rows if row["metric"] == metric)
        figure.add_scatter(
            name=name,
            x=[stage for stage, _ in points],
            y=[value for _, value in points],
            mode="lines+markers",
            line={"color": shade, "width": 2, "dash": dash},
            hovertemplate="stage %{x}: %{y:.4~r}",
        )
    if limits.get(limit) is not None:
        figure.add_hline(y=limits[limit], line={"color": INK, "width": 1, "dash": "dash"})
        figure.add_annotation(
            text=f"influence.{limit} = {limits[limit]:g}",
            x=0,
            xref="paper",
            y=limits[limit],
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
            font={"size": 11, "color": FAINT},
        )
    figure.update_xaxes(dtick=1, range=[stages[0] - 0.5, stages[-1] + 0.5])
    figure.update_yaxes(rangemode="tozero")
    return Panel(title, about, figure)
