"""Influence of every prompt of the pool on the validation sets, at the stage's starting policy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from pipeline_lib.atomic import remove_unfinished
from pipeline_lib.config import Cascade, ExactInfluence, InfluenceSelection
from pipeline_lib.parquet import is_whole
from pipeline_lib.selection.diagnosis import DIAGNOSIS_SCHEMA
from pipeline_lib.selection.top_alpha import number_kept
from tasks.policy import policy_directory
from tasks.prompt_rows import set_members
from tasks.step import Done, Step, Work, Workshop, fingerprints

if TYPE_CHECKING:
    from pipeline_lib.influence.drift import Drift
    from pipeline_lib.influence.job import ScoreJob
    from pipeline_lib.influence.scores import InfluenceScores

POOL = """
    SELECT prompt_id, outcome, has_signal FROM rollout_stats WHERE list_contains($1, fingerprint)
    QUALIFY row_number() OVER (PARTITION BY prompt_id ORDER BY list_position($1, fingerprint) DESC) = 1
    ORDER BY prompt_id
"""
"""Each prompt by the newest of its rollouts; $1 are their steps, oldest first."""

WITHOUT_EFFECT = {
    "workers",
    "tokens_per_micro_batch",
    "gradient_checkpointing",
    "on_stale",
    "max_kl",
    "min_ess",
}
"""On a score: how it is computed, and what is made of its drift."""


@dataclass(frozen=True)
class Score(Step):
    name: ClassVar[str] = "score"
    contract: ClassVar[int] = 2

    ingest: Done
    policy: Done
    rollouts_train: tuple[Done, ...]
    """The offline rollouts, then those that took the place of stale ones, oldest first."""
    rollouts_validation: tuple[Done, ...]
    """As `rollouts_train`, of the validation sets."""

    def settings(self) -> dict[str, Any]:
        influence = self.run.influence.model_dump(mode="json", exclude=WITHOUT_EFFECT)
        settings = {
            "influence": influence,
            "temperature": self.run.generation.temperature,
            "dtype": self.run.dtype,
        }
        return settings | ({"selection": self.run.selection.model_dump(mode="json")} if self._cascade else {})

    def inputs(self) -> dict[str, str]:
        inputs = {
            "ingest": self.ingest.fingerprint,
            "policy": self.policy.outputs["policy_id"],
        }
        inputs |= fingerprints("rollouts_validation", self.rollouts_validation)
        return inputs | fingerprints("rollouts_train", self.rollouts_train)

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        return [path for path in outputs["lake"] if not is_whole(self.root / path)]

    def left_over(self) -> str:
        n = len(list((self.root / "lake" / "scores" / self.fingerprint).glob("*.parquet")))
        return f"{n} finished part{'s' if n > 1 else ''} of its scores" if n else ""

    @property
    def _cascade(self) -> Cascade | None:
        return self.run.influence.cascade if isinstance(self.run.influence, ExactInfluence) else None

    def work(self, at: Workshop) -> Work:
        from pipeline_lib.influence.cascade import survivors
        from pipeline_lib.influence.drift import drift_table
        from pipeline_lib.influence.job import LakeKind
        from pipeline_lib.influence.shards import cheap_pass, n_done, validation_drifts

        pool = at.warehouse.query(POOL, [[done.fingerprint for done in self.rollouts_train]])
        with_signal = pool.filter(pool["has_signal"])["prompt_id"].to_pylist()
        held_out = at.warehouse.query(POOL, [[done.fingerprint for done in self.rollouts_validation]])
        n_directions = sum(held_out["has_signal"].to_pylist())
        members = set_members(at.warehouse, self.ingest, "validation")
        job = self._job(at.fingerprint, with_signal, members)
        for kind in ("scores", *get_args(LakeKind)):
            remove_unfinished(self.root / "lake" / kind / at.fingerprint)
        n_passes = n_directions + len(with_signal) + 2 * len(job.split_half)
        if self._cascade is not None:
            n_passes += min(len(with_signal), number_kept(self._cascade.keep * self.run.selection.alpha, len(pool)))
        done = n_done(job) + n_done(cheap_pass(job)) + (n_directions if job.directions_file.exists() else 0)
        at.reporter.start(self.label, n_passes, "gradients", done=done)
        cheap: InfluenceScores | None = None
        if self._cascade is not None:
            cheap, _ = self._score(cheap_pass(job), at)
            assert isinstance(self.run.selection, InfluenceSelection)
            job = job.model_copy(update={"only": survivors(cheap, self.run.selection, self._cascade.keep)})
        scores, drifts = self._score(job, at)
        job.directions_file.unlink(missing_ok=True)
        table = scores.to_table(self.run.influence.type)
        if cheap is not None:
            rest = cheap.without(set(scores.prompt_ids))
            table = pa.concat_tables([table, rest.to_table("cascade", ranks_after=len(scores.prompt_ids))])
        held_out_drifts = validation_drifts(job)
        n_stale = self._warn_of_stale("prompts", drifts, at)
        self._warn_of_stale("validation prompts", held_out_drifts, at)
        lake = sorted(str(path.relative_to(self.root)) for path in self._lake_files(at.fingerprint))
        outputs = {
            # What a selection is made of: told more of the same scores, it need not be made again.
            "ranks_id": _ranks_id(table),
            "n_scored": len(drifts),
            "n_stale": n_stale,
            "lake": lake,
            "outcomes": {v["values"]: v["counts"] for v in pool["outcome"].value_counts().to_pylist()},
        }
        return Work(
            outputs,
            {
                "influence_scores": table,
                "rollout_drift": pa.concat_tables(
                    [
                        drift_table(drifts, "train", self.run.influence),
                        drift_table(held_out_drifts, "validation", self.run.influence),
                    ]
                ),
                "diagnoses": pa.concat_tables([_stability(job), _projection(job)]),
            },
        )

    def _job(self, fingerprint: str, with_signal: Sequence[str], members: Mapping[str, list[str]]) -> ScoreJob:
        from pipeline_lib.influence.job import ScoreJob

        directory = self.root / "lake" / "scores" / fingerprint
        directory.mkdir(parents=True, exist_ok=True)
        return ScoreJob(
            fingerprint=fingerprint,
            directory=str(directory),
            lake=str(self.root / "lake"),
            policy_path=str(policy_directory(self.root, self.policy.outputs)),
            device=self.run.device,
            dtype=self.run.dtype,
            temperature=self.run.generation.temperature,
            tokens_per_micro_batch=self.run.scoring_tokens,
            influence=self.run.influence,
            rollouts=[[str(self.root / path) for path in done.outputs["shards"]] for done in self.rollouts_train],
            validation_rollouts=[
                [str(self.root / path) for path in done.outputs["shards"]] for done in self.rollouts_validation
            ],
            validation=dict(members),
            # Ids are hashes: the first ones are as good as drawn.
            split_half=list(with_signal[: self.run.influence.split_half_prompts]),
        )

    def _score(self, job: ScoreJob, at: Workshop) -> tuple[InfluenceScores, dict[str, Drift]]:
        """One pass over the pool, and how far each prompt that was run has drifted."""
        from pipeline_lib.influence.scores import scores_from_products
        from pipeline_lib.influence.shards import direction_norms, pool_products
        from tasks.scoring import score_all

        score_all(job, self.run, self.label, at.reporter)
        products, drifts = pool_products(job)
        return scores_from_products(products, list(job.validation), direction_norms(job)), drifts

    def _warn_of_stale(self, what: str, drifts: Mapping[str, Drift], at: Workshop) -> int:
        config = self.run.influence
        n_stale = sum(drift.is_stale(config) for drift in drifts.values())
        if n_stale:
            # Of a validation set that is solved throughout when it is collected again, the older rollouts stay.
            again = config.on_stale == "recollect"
            remedy = "give the set harder prompts" if again else "set influence.on_stale: recollect"
            at.reporter.say(
                f"{self.label}: the rollouts of {n_stale} of {len(drifts)} {what} are stale (KL above "
                f"{config.max_kl} nats a token or effective share of tokens below {config.min_ess}): their scores are "
                f"of little worth; {remedy}, or train fewer steps a stage."
            )
        return n_stale

    def _lake_files(self, fingerprint: str) -> Iterator[Path]:
        from pipeline_lib.influence.job import LakeKind

        for kind in ("scores", *get_args(LakeKind)):
            yield from (self.root / "lake" / kind / fingerprint).glob("*.parquet")


def _ranks_id(table: pa.Table) -> str:
    columns = ("validation_set", "prompt_id", "rank")
    ranks = sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))
    return hashlib.sha256(json.dumps(ranks).encode()).hexdigest()[:16]


def _stability(job: ScoreJob) -> pa.Table:
    """How far the two halves of each prompt's trajectories agree, by validation set."""
    from pipeline_lib.influence.scores import scores_from_products
    from pipeline_lib.influence.shards import direction_norms, halves_products
    from pipeline_lib.influence.stability import split_half

    rows: list[dict[str, Any]] = []
    if job.split_half:
        norms = direction_norms(job)
        cosine_2NV = np.stack(
            [scores_from_products(half, list(job.validation), norms).cosine for half in halves_products(job)]
        )
        for name, stability in zip(job.validation, split_half(cosine_2NV), strict=True):
            for metric in ("spearman", "reliability"):
                value = getattr(stability, metric)
                rows.append(
                    {
                        "subject": name,
                        "metric": f"split_half_{metric}",
                        "value": None if math.isnan(value) else value,
                        "n": stability.n_prompts,
                    }
                )
    return pa.Table.from_pylist(rows, schema=DIAGNOSIS_SCHEMA)


def _projection(job: ScoreJob) -> pa.Table:
    """How far the projection distorts a sample of gradients; nothing where there is none."""
    path = job.path("projection_check.json")
    check: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    rows = [
        {"subject": "", "metric": f"projection_{name}", "value": value, "n": check["n"]}
        for name, value in check.items()
        if name != "n"
    ]
    return pa.Table.from_pylist(rows, schema=DIAGNOSIS_SCHEMA)
