"""Influence of every prompt of the pool on the validation sets, at the stage's starting policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pipeline_lib.influence import score
from pipeline_lib.policy import load_policy, resolve_device
from tasks.prompt_rows import set_members
from tasks.rollouts import load_groups
from tasks.step import Done, Step, Work, Workshop


@dataclass(frozen=True)
class Score(Step):
    name: ClassVar[str] = "score"

    ingest: Done
    policy: Done
    rollouts_train: Done
    rollouts_validation: Done

    def settings(self) -> dict[str, Any]:
        return {
            "influence": self.run.influence.model_dump(mode="json"),
            "temperature": self.run.generation.temperature,
            "dtype": self.run.dtype,
        }

    def inputs(self) -> dict[str, str]:
        return {
            "ingest": self.ingest.fingerprint,
            "policy": self.policy.outputs["policy_id"],
            "rollouts_train": self.rollouts_train.fingerprint,
            "rollouts_validation": self.rollouts_validation.fingerprint,
        }

    def work(self, at: Workshop) -> Work:
        groups = load_groups(self.root, self.rollouts_train)
        validation_groups = {g.prompt_id: g for g in load_groups(self.root, self.rollouts_validation)}
        members = set_members(at.warehouse, self.ingest, "validation")
        validation = {name: [validation_groups[i] for i in ids] for name, ids in members.items()}
        n_with_signal = sum(g.has_signal for g in groups)
        at.reporter.start(self.label, n_with_signal, "prompts")
        policy = load_policy(
            self.policy.outputs["path"],
            device=resolve_device(self.run.device),
            dtype=getattr(torch, self.run.dtype),
        )
        scores = score(
            self.run.influence,
            policy,
            groups,
            validation,
            temperature=self.run.generation.temperature,
            tokens_per_micro_batch=self.run.train.tokens_per_micro_batch,
            progress=at.reporter.advance,
        )
        outputs = {"n_scored": n_with_signal, "outcomes": dict(Counter(g.outcome for g in groups))}
        return Work(outputs, {"influence_scores": scores.to_table()})
