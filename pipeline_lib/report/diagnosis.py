"""The table that tells how far scores and selection of each stage can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_lib.report.data import ReportData


@dataclass(frozen=True)
class Cell:
    value: str
    """Empty where it was not computed or is not defined."""
    n: int | None


@dataclass(frozen=True)
class FactRow:
    subject: str
    cells: Sequence[Cell]
    """One for each stage."""


@dataclass(frozen=True)
class Metric:
    title: str
    explanation: str
    rows: Sequence[FactRow]


@dataclass(frozen=True)
class Diagnosis:
    stages: Sequence[int]
    metrics: Sequence[Metric]


# Metric, title, explanation, form of the value.
_METRICS = (
    (
        "share_stale",
        "Stale rollouts",
        "Share of the scored prompts whose rollouts the policy has left behind: influence.max_kl, influence.min_ess.",
        "{:.1%}",
    ),
    ("kl_median", "Drift, median", "KL a token (nats) of the behaviour policy from the policy scored.", "{:.4f}"),
    ("kl_p95", "Drift, 95th percentile", "Of the same: the worst twentieth of the prompts is above it.", "{:.4f}"),
    (
        "ess_median",
        "Effective tokens, median",
        "Share of a prompt's tokens that its ratios π/β leave in effect.",
        "{:.2f}",
    ),
    ("ess_p05", "Effective tokens, 5th percentile", "Of the same: the worst twentieth is below it.", "{:.2f}"),
    (
        "sequence_ess_median",
        "Effective trajectories, median",
        "The same for whole trajectories, weighted by the product of their ratios, which the score does not use.",
        "{:.2f}",
    ),
    (
        "projection_inner_product_mean",
        "Distortion of inner products, mean",
        "Of the projection, on a sample of gradients: |<Pa,Pb> - <a,b>| / (|a||b|).",
        "{:.4f}",
    ),
    ("projection_inner_product_max", "Distortion of inner products, largest", "Of the same pairs.", "{:.4f}"),
    (
        "projection_singular_min",
        "Projection, smallest singular value",
        "On the span of the sample: 1 keeps every length, 0 loses a direction.",
        "{:.3f}",
    ),
    ("projection_singular_max", "Projection, largest singular value", "Of the same.", "{:.3f}"),
    (
        "split_half_spearman",
        "Split-half rank correlation",
        "Ranks by one half of each prompt's rollouts against ranks by the other: 1 is stable, 0 is chance.",
        "{:.2f}",
    ),
    (
        "split_half_reliability",
        "Split-half reliability",
        "The same, carried over from half of the rollouts to all of them.",
        "{:.2f}",
    ),
    (
        "share_zero",
        "Score exactly 0",
        "Share of the pool without influence, mostly for want of a gradient: ranked, but not by merit.",
        "{:.1%}",
    ),
    (
        "share_tied",
        "Ties",
        "Of the prompts with a gradient, those whose score is exactly another's; “whole” is the score selected by.",
        "{:.1%}",
    ),
    (
        "ties_broken_at_cut",
        "Ties broken at the cut",
        "Prompts with the very scores of others, where the cut falls between them: prompt_id decided.",
        "{:.0f}",
    ),
    (
        "effective_prompts",
        "Effective prompts",
        "exp(entropy) of the positive influence: by how many prompts it is carried, of the n that have any.",
        "{:.1f}",
    ),
    (
        "jaccard_previous",
        "Overlap with the stage before",
        "Jaccard index of the two selections; two random draws of share α have about α/(2−α).",
        "{:.2f}",
    ),
    ("pass_rate_offline_pool", "Pass rate of the pool", "Mean over its prompts in the offline rollouts.", "{:.1%}"),
    (
        "pass_rate_offline_selected",
        "Pass rate of the selected, offline",
        "Far from that of the pool, the ranking may be one of difficulty alone.",
        "{:.1%}",
    ),
    (
        "pass_rate_online_selected",
        "Pass rate of the selected, in training",
        "Mean over those that were rolled out in the stage; what the sampler skipped is not in it.",
        "{:.1%}",
    ),
    (
        "similarity_pool",
        "Likeness of the pool in text",
        "Mean cosine of its prompts' embeddings to the centroid of the set's.",
        "{:.3f}",
    ),
    (
        "similarity_selected",
        "Likeness of the selected in text",
        "No higher than the pool's, the ranking goes by something else than the wording.",
        "{:.3f}",
    ),
)


def diagnosis(data: ReportData) -> Diagnosis:
    rows = data.diagnoses.to_pylist()
    stages = sorted({row["stage"] for row in rows})
    found = {(row["metric"], row["subject"], row["stage"]): row for row in rows}
    metrics = []
    for metric, title, explanation, form in _METRICS:
        facts = []
        for subject in sorted({row["subject"] for row in rows if row["metric"] == metric}):
            of_subject = [found.get((metric, subject, stage)) for stage in stages]
            cells = [_cell(row["value"], row["n"], form) if row else Cell("", None) for row in of_subject]
            facts.append(FactRow(subject or "whole", cells))
        if facts:
            metrics.append(Metric(title, explanation, facts))
    return Diagnosis(stages, metrics)


def _cell(value: float | None, n: int, form: str) -> Cell:
    return Cell("" if value is None else form.format(value), n)
