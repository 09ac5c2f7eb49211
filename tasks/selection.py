"""Top α of the pool by the configured strategy; every prompt's place and reason are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pipeline_lib.config import RandomSelection
from pipeline_lib.selection import Candidates, select
from tasks.prompt_rows import set_members
from tasks.step import Done, Step, Work, Workshop

CANDIDATES = """
    WITH history AS (
        SELECT s.*, list_position($fingerprints, s.fingerprint) AS age
        FROM rollout_stats s WHERE list_contains($fingerprints, s.fingerprint)
    )
    SELECT prompt_id,
           arg_max(n_correct / n, (age, step)) FILTER (n > 0) AS pass_rate,
           coalesce(arg_max(n, (age, step)) FILTER (n > 0), 0) AS n,
           arg_min(outcome, (age, step)) AS outcome,
           arg_min(has_signal, (age, step)) AS has_signal
    FROM history GROUP BY prompt_id ORDER BY prompt_id
"""
"""$fingerprints are the pool's rollout steps, oldest first: the offline one opens the list."""

COSINES = """
    SELECT prompt_id, validation_set, cosine FROM influence_scores
    WHERE fingerprint = $1 ORDER BY validation_set, prompt_id
"""


@dataclass(frozen=True)
class Select(Step):
    name: ClassVar[str] = "select"

    ingest: Done
    rollouts_train: Done
    score: Done | None
    trained: tuple[Done, ...]
    """The training steps of earlier stages, oldest first: they know newer pass rates."""

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"selection": self.run.selection.model_dump(mode="json")}
        if isinstance(self.run.selection, RandomSelection):
            settings |= {"seed": self.run.seed, "stage": self.stage}
        return settings

    def inputs(self) -> dict[str, str]:
        inputs = {"ingest": self.ingest.fingerprint, "rollouts_train": self.rollouts_train.fingerprint}
        if self.score is not None:
            inputs["score"] = self.score.fingerprint
        return inputs | {f"train_{i}": done.fingerprint for i, done in enumerate(self.trained, start=1)}

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        candidates = self._candidates(at)
        table = select(self.run.selection, candidates, seed=(self.run.seed, self.stage))
        n_selected = sum(table["selected"].to_pylist())
        return Work({"n_pool": len(candidates), "n_selected": n_selected}, {"selections": table})

    def _candidates(self, at: Workshop) -> Candidates:
        fingerprints = [self.rollouts_train.fingerprint, *(done.fingerprint for done in self.trained)]
        pool = at.warehouse.query(CANDIDATES, {"fingerprints": fingerprints})
        prompt_ids = np.array(pool["prompt_id"].to_pylist(), dtype=object)
        cosine_NV: np.ndarray | None = None
        validation_sets: tuple[str, ...] = ()
        if self.score is not None:
            validation_sets = tuple(sorted(set_members(at.warehouse, self.ingest, "validation")))
            cosines = at.warehouse.query(COSINES, [self.score.fingerprint])["cosine"].to_numpy()
            cosine_NV = cosines.reshape(len(validation_sets), len(prompt_ids)).T
        return Candidates(
            prompt_ids=prompt_ids,
            pass_rate=np.array(pool["pass_rate"].to_pylist(), dtype=float),
            n=pool["n"].to_numpy(),
            outcome=np.array(pool["outcome"].to_pylist(), dtype=object),
            has_signal=pool["has_signal"].to_numpy(),
            cosine_NV=cosine_NV,
            validation_sets=validation_sets,
        )
