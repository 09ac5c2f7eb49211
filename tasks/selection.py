"""Top α of the pool by the configured strategy; every prompt's place and reason are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pipeline_lib.config import RandomSelection
from pipeline_lib.selection import Candidates, select
from tasks.prompt_rows import set_members
from tasks.step import Done, Step, Work, Workshop, fingerprints

CANDIDATES = """
    WITH history AS (
        SELECT s.*, list_position($fingerprints, s.fingerprint) AS age
        FROM rollout_stats s WHERE list_contains($fingerprints, s.fingerprint)
    )
    SELECT prompt_id,
           arg_max(n_correct / n, (age, step)) FILTER (n > 0) AS pass_rate,
           coalesce(arg_max(n, (age, step)) FILTER (n > 0), 0) AS n,
           arg_max(outcome, age) FILTER (list_contains($collected, fingerprint)) AS outcome,
           arg_max(has_signal, age) FILTER (list_contains($collected, fingerprint)) AS has_signal
    FROM history GROUP BY prompt_id ORDER BY prompt_id
"""
"""$fingerprints are the steps that rolled the pool out, oldest first, $collected those of them that a score is from."""

RANKS = """
    SELECT prompt_id, validation_set, rank FROM influence_scores
    WHERE fingerprint = $1 ORDER BY validation_set, prompt_id
"""


@dataclass(frozen=True)
class Select(Step):
    name: ClassVar[str] = "select"

    ingest: Done
    rollouts_train: tuple[Done, ...]
    """The offline rollouts, then those that took the place of stale ones, oldest first."""
    score: Done | None
    history: tuple[Done, ...]
    """Every earlier step that rolled the pool out, oldest first: the later ones know newer pass rates."""

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"selection": self.run.selection.model_dump(mode="json")}
        if isinstance(self.run.selection, RandomSelection):
            settings |= {"seed": self.run.seed, "stage": self.stage}
        return settings

    def inputs(self) -> dict[str, str]:
        inputs = {"ingest": self.ingest.fingerprint}
        if self.score is not None:
            inputs["ranks"] = self.score.outputs["ranks_id"]
        inputs |= fingerprints("rollouts_train", self.rollouts_train)
        return inputs | fingerprints("history", self.history)

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        candidates = self._candidates(at)
        table = select(self.run.selection, candidates, seed=(self.run.seed, self.stage))
        n_selected = sum(table["selected"].to_pylist())
        return Work({"n_pool": len(candidates), "n_selected": n_selected}, {"selections": table})

    def _candidates(self, at: Workshop) -> Candidates:
        steps = {
            "fingerprints": [done.fingerprint for done in self.history],
            "collected": [done.fingerprint for done in self.rollouts_train],
        }
        pool = at.warehouse.query(CANDIDATES, steps)
        prompt_ids = np.array(pool["prompt_id"].to_pylist(), dtype=object)
        rank_NV: np.ndarray | None = None
        validation_sets: tuple[str, ...] = ()
        if self.score is not None:
            validation_sets = tuple(sorted(set_members(at.warehouse, self.ingest, "validation")))
            ranks = at.warehouse.query(RANKS, [self.score.fingerprint])["rank"].to_numpy()
            rank_NV = ranks.reshape(len(validation_sets), len(prompt_ids)).T
        return Candidates(
            prompt_ids=prompt_ids,
            pass_rate=np.array(pool["pass_rate"].to_pylist(), dtype=float),
            n=pool["n"].to_numpy(),
            outcome=np.array(pool["outcome"].to_pylist(), dtype=object),
            has_signal=pool["has_signal"].to_numpy(),
            rank_NV=rank_NV,
            validation_sets=validation_sets,
        )
