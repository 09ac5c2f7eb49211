"""What ails a run, read from its statistics: the symptom with its numbers, the likeliest cause, and the key to turn.

Each threshold is a rule of thumb and stands beside its reason; where several causes come together, all are told.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks.rollouts import IDENTICAL_SAMPLES
from warehouse import Warehouse
from warehouse.warehouse import Query

STANDARD_ERRORS = 2.0
"""A fall within two of its standard errors is taken for chance."""
HARD = 0.25
"""Pass rate below which a prompt counts as hard."""
MOSTLY = 0.5
KL_JUMP = 5.0
"""Largest KL of a stage's steps over their median."""
UNSTABLE = 0.3
"""Rank correlation of two halves of the rollouts below which a ranking is mostly noise."""
EXPECTED_SKIPS, EXPECTED_ZERO_VARIANCE = 0.2, 0.4
"""Skip rates rise from about 20 %; zero-variance shares of 20 to 40 % are healthy."""
SWINGING = 0.5
"""Standard deviation of the steps' times over their mean."""
DISTORTED = 0.1
FEW = 0.05
UNGRADED = 0.01
CUT_OFF = 0.2

FALLS = """
    SELECT stage, evaluation_set, k, value, change, se FROM (
        SELECT *, change_from_previous_stage AS change,
               sqrt(standard_error ** 2 + lag(standard_error) OVER w ** 2) AS se
        FROM evaluation_history WHERE run_id = $run_id AND metric = 'avg'
        WINDOW w AS (PARTITION BY evaluation_set, k ORDER BY stage)
    ) WHERE change < 0 ORDER BY ALL
"""
SKIPPED = """
    SELECT run_steps.stage, keep, avg((known.pass_rate < $hard)::INTEGER) AS hard
    FROM sampler_decisions AS decisions
    JOIN run_steps USING (fingerprint)
    JOIN selection_history AS known
        ON known.run_id = run_steps.run_id AND known.stage = run_steps.stage AND known.prompt_id = decisions.prompt_id
    WHERE run_steps.run_id = $run_id GROUP BY ALL
"""
STEPS = """
    SELECT stage, t.* FROM train_steps AS t JOIN run_steps USING (fingerprint)
    WHERE run_id = $run_id AND name = 'train' ORDER BY stage, t.step
"""
EFFICIENCY = """
    SELECT e.*, n_selected FROM sampler_efficiency AS e JOIN stage_summary USING (run_id, stage)
    WHERE run_id = $run_id ORDER BY stage
"""
DIAGNOSIS = "SELECT stage, subject, metric, value, n FROM stage_diagnosis WHERE run_id = $run_id AND value IS NOT NULL"
KNOWN = """
    SELECT stage, avg((pass_rate IS NOT NULL)::INTEGER) AS known FROM selection_history
    WHERE run_id = $run_id AND selected GROUP BY ALL
"""


@dataclass(frozen=True)
class Symptom:
    stage: int
    what: str
    cause: str
    remedy: str
    """Names a key of the config."""


@dataclass(frozen=True)
class Patient:
    """All that is looked at of one run."""

    config: dict[str, Any]
    falls: list[dict[str, Any]]
    hard_share: dict[tuple[int, bool], float]
    """By stage and whether the sampler kept the prompts."""
    steps: dict[int, list[dict[str, Any]]]
    efficiency: list[dict[str, Any]]
    facts: dict[tuple[str, int], dict[str, dict[str, Any]]]
    """By metric and stage, the rows by subject."""
    known: dict[int, float]
    """By stage, the share of the selected whose pass rate was known before it."""


def examine_run(warehouse: Warehouse, run_id: str) -> Iterator[Symptom]:
    """Symptoms by what they are of; none is not a proof of health."""
    with warehouse.one_snapshot() as query:
        patient = _look_at(query, run_id)
    for find in (_falls, _too_few_skips, _swings, _scores, _projection, _answers, _identical):
        yield from find(patient)


def _look_at(query: Query, run_id: str) -> Patient:
    def ask(sql: str, **more: Any) -> list[dict[str, Any]]:
        return query(sql, {"run_id": run_id, **more}).to_pylist()

    [run] = ask("SELECT config FROM runs WHERE run_id = $run_id")
    steps: dict[int, list[dict[str, Any]]] = {}
    for row in ask(STEPS):
        steps.setdefault(row["stage"], []).append(row)
    facts: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in ask(DIAGNOSIS):
        facts.setdefault((row["metric"], row["stage"]), {})[row["subject"]] = row
    return Patient(
        config=json.loads(run["config"]),
        falls=ask(FALLS),
        hard_share={(row["stage"], row["keep"]): row["hard"] for row in ask(SKIPPED, hard=HARD)},
        steps=steps,
        efficiency=ask(EFFICIENCY),
        facts=facts,
        known={row["stage"]: row["known"] for row in ask(KNOWN)},
    )


def _falls(patient: Patient) -> Iterator[Symptom]:
    for fall in patient.falls:
        if fall["se"] is None or fall["change"] > -STANDARD_ERRORS * fall["se"]:
            continue
        stage = fall["stage"]
        what = (
            f"avg@{fall['k']} on {fall['evaluation_set']} fell by {-fall['change']:.1%} to {fall['value']:.1%}, "
            f"{-fall['change'] / fall['se']:.1f} standard errors"
            if fall["se"]
            else f"avg@{fall['k']} on {fall['evaluation_set']} fell by {-fall['change']:.1%} to {fall['value']:.1%}"
        )
        causes = [*_hard_skipped(patient, stage), *_kl_jump(patient, stage), *_unstable(patient, stage)]
        for cause, remedy in causes or [
            (
                "nothing here explains it: hard prompts were not skipped, no step jumped, ranks are stable",
                "train.validation: {take_best: true} hands on the best step's policy",
            )
        ]:
            yield Symptom(stage, what, cause, remedy)


def _hard_skipped(patient: Patient, stage: int) -> Iterator[tuple[str, str]]:
    skipped, kept = (patient.hard_share.get((stage, keep)) for keep in (False, True))
    if skipped is not None and skipped > MOSTLY:
        beside = "" if kept is None else f", of the kept {kept:.0%}"
        yield (
            f"the sampler left the hard prompts out: {skipped:.0%} of the skipped had a pass rate below {HARD}{beside}",
            "raise train.sampler.exploration, or train.sampler.target_wrong",
        )


def _kl_jump(patient: Patient, stage: int) -> Iterator[tuple[str, str]]:
    kls = [(row["kl"], row["step"]) for row in patient.steps.get(stage, []) if row["kl"] is not None]
    if not kls:
        return
    largest, at = max(kls)
    middle = statistics.median(kl for kl, _ in kls)
    if middle > 0 and largest > KL_JUMP * middle:
        yield (
            f"the policy jumped at step {at}: KL {largest:.3g} against a median of {middle:.3g}",
            "lower train.learning_rate or train.max_grad_norm, or set train.stage_kl_limit",
        )


def _unstable(patient: Patient, stage: int) -> Iterator[tuple[str, str]]:
    for subject, row in patient.facts.get(("split_half_spearman", stage), {}).items():
        if row["value"] < UNSTABLE:
            yield (
                f"the ranking{_of(subject)} is mostly noise: two halves of the rollouts agree by {row['value']:.2f} "
                f"(Spearman, {row['n']} prompts)",
                "raise offline.samples and offline.validation_samples",
            )


def _too_few_skips(patient: Patient) -> Iterator[Symptom]:
    sampler = patient.config.get("train", {}).get("sampler", {})
    for row in patient.efficiency:
        zero_variance = _zero_variance(patient.steps.get(row["stage"], []))
        if row["skip_rate"] is None or row["skip_rate"] > EXPECTED_SKIPS or zero_variance < EXPECTED_ZERO_VARIANCE:
            continue
        what = (
            f"{row['skip_rate']:.0%} of the prompts were skipped while {zero_variance:.0%} of the groups had no signal"
        )
        for cause, remedy in _why_few_skips(patient, row, sampler):
            yield Symptom(row["stage"], what, cause, remedy)


def _zero_variance(steps: list[dict[str, Any]]) -> float:
    """Share of the groups of a stage whose rewards are all one, whoever of them is correct."""
    groups = [(row["frac_reward_zero_std"] or 0.0, row["prompts_rolled_out"]) for row in steps]
    return sum(share * n for share, n in groups) / max(1, sum(n for _, n in groups))


def _why_few_skips(patient: Patient, row: dict[str, Any], sampler: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = sampler.get("type", "")
    if kind in ("uniform", "dynamic"):
        yield f"the sampler {kind} skips nothing", "train.sampler: {type: greso}, or posterior"
        return
    found = False
    known = patient.known.get(row["stage"], 1.0)
    if known < MOSTLY:
        found = True
        rolled_out = patient.config.get("offline", {}).get("prompts")
        cause = "the history was not joined" if rolled_out is None else f"only {rolled_out} prompts were rolled out"
        remedy = "keep the prompts' data_source and text as they were: they are the key"
        yield (
            f"{cause}: of {known:.0%} of the selected a pass rate was known before the stage",
            remedy if rolled_out is None else "raise offline.prompts, or take the sampler posterior with a prior",
        )
    epochs = row["prompts_proposed"] / max(1, row["n_selected"] or 0)
    if epochs < 2:
        found = True
        yield (
            f"too few epochs: each of {row['n_selected']} selected prompts was met {epochs:.1f} times",
            "raise train.steps, or lower selection.alpha",
        )
    last = json.loads(patient.steps[row["stage"]][-1]["sampler_metrics"])
    for name in ("p_right", "p_wrong"):
        if name in last and last[name] >= sampler.get("p_max", 1.0) - 1e-9:
            found = True
            yield f"{name} is at its upper bound, {last[name]:g}", "raise train.sampler.p_max"
    if not found:
        yield (
            "the predictor is not calibrated: what it keeps has no signal as often as before",
            "lower train.sampler.target_right and target_wrong, or train.sampler: {type: posterior}",
        )


def _swings(patient: Patient) -> Iterator[Symptom]:
    for stage, steps in patient.steps.items():
        times = [row["step_time"] for row in steps]
        if len(times) < 4 or statistics.stdev(times) < SWINGING * statistics.mean(times):
            continue
        rounds = [row["generation_rounds"] for row in steps]
        prompts = [row["prompts_rolled_out"] for row in steps]
        yield Symptom(
            stage,
            f"steps took {min(times):.1f} to {max(times):.1f} s",
            f"{min(rounds)} to {max(rounds)} generation rounds a step, and {min(prompts)} to {max(prompts)} prompts",
            "raise train.refill.min_prompts, lower train.refill.max_rounds",
        )


def _scores(patient: Patient) -> Iterator[Symptom]:
    for (metric, stage), rows in sorted(patient.facts.items()):
        for subject, row in sorted(rows.items()):
            value, n = row["value"], row["n"]
            if metric == "share_zero" and value > 1 - EXPECTED_SKIPS:
                what = f"{value:.0%} of {n} prompts score exactly 0{_of(subject)}"
                cause = "their offline rollouts were all right or all wrong, and have no gradient"
                yield Symptom(stage, what, cause, "raise offline.samples, or bring prompts of middling difficulty")
            # Ranks that are fused are alike by swapping, whatever they are ranks of.
            elif metric == "share_tied" and subject and value > EXPECTED_SKIPS:
                what = f"{value:.0%} of {n} prompts with a gradient share their score{_of(subject)} with another"
                cause = "few samples and short completions give the same gradient again and again"
                yield Symptom(stage, what, cause, "raise offline.samples")
            elif metric == "effective_prompts" and n and value < FEW * n:
                what = f"{value:.1f} prompts carry the influence{_of(subject)} of {n}"
                cause = "a few gradients outweigh all others"
                yield Symptom(stage, what, cause, "raise selection.rrf_k, or offline.samples")
            elif metric == "share_stale" and value > MOSTLY:
                what = f"the rollouts of {value:.0%} of {n} prompts{_of(subject)} are stale"
                cause = "the policy has moved away from the one that made them"
                yield Symptom(stage, what, cause, "influence.on_stale: recollect")


def _projection(patient: Patient) -> Iterator[Symptom]:
    for (metric, stage), rows in sorted(patient.facts.items()):
        if metric == "projection_inner_product_mean" and (row := rows[""])["value"] > DISTORTED:
            yield Symptom(
                stage,
                f"the projection changes inner products by {row['value']:.3f} of the lengths, on {row['n']} gradients",
                "too few dimensions for so many coordinates",
                "raise influence.dimension, or influence.keep_ratio; or influence.type: exact",
            )


def _answers(patient: Patient) -> Iterator[Symptom]:
    for stage, steps in patient.steps.items():
        rollouts = sum(row["rollouts"] for row in steps)
        ungraded = sum(row["n_ungraded"] for row in steps)
        if rollouts and ungraded > UNGRADED * rollouts:
            timeouts, errors = (sum(row[name] or 0 for row in steps) for name in ("n_timeout", "n_error"))
            yield Symptom(
                stage,
                f"{ungraded} of {rollouts} completions could not be graded",
                f"the verifier ran out of time {timeouts} times and failed {errors} times",
                "another `verifier` for those prompts; `rlsift sql` on rollout_stats.n_ungraded names them",
            )
        lengths = [row["completions_clipped_ratio"] for row in steps if row["completions_clipped_ratio"] is not None]
        if lengths and (cut := statistics.mean(lengths)) > CUT_OFF:
            yield Symptom(
                stage,
                f"{cut:.0%} of the completions were cut off",
                "they reached the longest that is allowed before they stopped",
                "raise generation.max_tokens, or set train.loss.mask_truncated",
            )


def _identical(patient: Patient) -> Iterator[Symptom]:
    for (metric, stage), rows in sorted(patient.facts.items()):
        if metric == IDENTICAL_SAMPLES:
            n, times = sum(row["n"] for row in rows.values()), max(row["value"] for row in rows.values())
            yield Symptom(
                stage,
                f"each of the {n} prompts of {len(rows)} shards got the same completion {times:.0f} times",
                "the engine draws all completions of a prompt with one seed",
                "generation.engine: {type: transformers}, or a server that takes n completions in one request",
            )


def _of(subject: str) -> str:
    return f" for {subject}" if subject else ""
