"""What a stage's scores and selection are worth. Nothing is trained on it, so telling more trains nothing again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline_lib.selection.diagnosis import diagnose
from tasks.step import Done, Step, Work, Workshop, fingerprints

POOL = """
    SELECT selections.prompt_id, selections.score, selections.selected,
           coalesce(arg_max(collected.has_signal, list_position($2, collected.fingerprint)), false) AS has_signal
    FROM selections
    LEFT JOIN rollout_stats AS collected
        ON collected.prompt_id = selections.prompt_id AND list_contains($2, collected.fingerprint)
    WHERE selections.fingerprint = $1
    GROUP BY ALL ORDER BY selections.prompt_id
"""

COSINES = """
    SELECT prompt_id, validation_set, cosine FROM influence_scores
    WHERE fingerprint = $1 ORDER BY validation_set, prompt_id
"""


@dataclass(frozen=True)
class Diagnose(Step):
    name: ClassVar[str] = "diagnose"
    contract: ClassVar[int] = 2  # prompts that were not rolled out count

    rollouts_train: tuple[Done, ...]
    """The offline rollouts, then those that took the place of stale ones, oldest first."""
    score: Done | None
    selection: Done

    def settings(self) -> dict[str, Any]:
        return {}

    def inputs(self) -> dict[str, str]:
        inputs = fingerprints("rollouts_train", self.rollouts_train)
        inputs |= {"selection": self.selection.fingerprint}
        return inputs if self.score is None else inputs | {"score": self.score.fingerprint}

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        pool = at.warehouse.query(
            POOL, [self.selection.fingerprint, [done.fingerprint for done in self.rollouts_train]]
        )
        cosine_by_set = {}
        if self.score is not None:
            cosines = at.warehouse.query(COSINES, [self.score.fingerprint])
            names = cosines["validation_set"].unique().to_pylist()
            cosine_VN = cosines["cosine"].to_numpy().reshape(len(names), len(pool))
            cosine_by_set = dict(zip(names, cosine_VN, strict=True))
        table = diagnose(
            pool["score"].to_numpy(), pool["selected"].to_numpy(), pool["has_signal"].to_numpy(), cosine_by_set
        )
        return Work({"n_facts": len(table)}, {"diagnoses": table})
