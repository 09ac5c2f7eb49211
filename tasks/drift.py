"""Rollouts that the policy has moved away from: found before a stage is scored, and collected again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pipeline_lib.records import Prompt
from tasks.policy import policy_directory
from tasks.rollouts import RolloutStep
from tasks.step import Done, Step, Work, Workshop, fingerprints

if TYPE_CHECKING:
    from pipeline_lib.influence.drift import Drift
    from pipeline_lib.policy import Policy

STALE = "SELECT prompt_id FROM rollout_drift WHERE fingerprint = $1 AND split = $2 AND stale"


@dataclass(frozen=True)
class MeasureDrift(Step):
    """One forward pass over the newest offline rollouts of each prompt with signal."""

    name: ClassVar[str] = "drift"

    policy: Done
    rollouts_train: tuple[Done, ...]
    """Oldest first; of a prompt that is in several the last one counts."""
    rollouts_validation: tuple[Done, ...]

    def settings(self) -> dict[str, Any]:
        return {
            "max_kl": self.run.influence.max_kl,
            "min_ess": self.run.influence.min_ess,
            "temperature": self.run.generation.temperature,
            "dtype": self.run.dtype,
        }

    def inputs(self) -> dict[str, str]:
        inputs = {"policy": self.policy.outputs["policy_id"]}
        inputs |= fingerprints("rollouts_validation", self.rollouts_validation)
        return inputs | fingerprints("rollouts_train", self.rollouts_train)

    def work(self, at: Workshop) -> Work:
        import torch

        from pipeline_lib.influence.drift import drift_table
        from pipeline_lib.policy import load_policy, resolve_device

        n_shards = sum(len(done.outputs["shards"]) for done in (*self.rollouts_train, *self.rollouts_validation))
        at.reporter.start(self.label, n_shards, "shards")
        policy = load_policy(
            policy_directory(self.root, self.policy.outputs),
            device=resolve_device(self.run.device),
            dtype=getattr(torch, self.run.dtype),
        )
        train = self._drifts(policy, self.rollouts_train, at)
        validation = self._drifts(policy, self.rollouts_validation, at)
        config = self.run.influence
        stale = {
            f"n_stale_{name}": sum(drift.is_stale(config) for drift in drifts.values())
            for name, drifts in (("train", train), ("validation", validation))
        }
        tables = [drift_table(train, "train", config), drift_table(validation, "validation", config)]
        return Work({"n_measured": len(train) + len(validation), **stale}, {"rollout_drift": pa.concat_tables(tables)})

    def _drifts(self, policy: Policy, rollouts: Sequence[Done], at: Workshop) -> dict[str, Drift]:
        from pipeline_lib.influence.drift import measure_drift
        from pipeline_lib.rollout import read_groups, read_prompt_ids

        drifts: dict[str, Drift] = {}
        newer: set[str] = set()
        for done in reversed(rollouts):
            files = [self.root / path for path in done.outputs["shards"]]
            for file in files:
                drifts |= measure_drift(
                    policy,
                    read_groups(file, without=newer),
                    temperature=self.run.generation.temperature,
                    tokens_per_micro_batch=self.run.scoring_tokens,
                )
                at.reporter.advance(1)
            newer.update(prompt_id for file in files for prompt_id in read_prompt_ids(file))
        return drifts


@dataclass(frozen=True)
class Recollect(RolloutStep):
    """New completions of each prompt whose offline rollouts are stale, from the stage's starting policy."""

    phase = "offline"

    drift: Done

    def inputs(self) -> dict[str, str]:
        return super().inputs() | {"drift": self.drift.fingerprint}

    def prompts(self, at: Workshop) -> Sequence[Prompt]:
        stale = set(at.warehouse.query(STALE, [self.drift.fingerprint, self.split])["prompt_id"].to_pylist())
        return [prompt for prompt in super().prompts(at) if prompt.prompt_id in stale]


@dataclass(frozen=True)
class RecollectTrain(Recollect):
    name: ClassVar[str] = "recollect_train"
    split = "train"

    @property
    def samples(self) -> int:
        return self.run.offline.samples


@dataclass(frozen=True)
class RecollectValidation(Recollect):
    name: ClassVar[str] = "recollect_validation"
    split = "validation"

    @property
    def samples(self) -> int:
        return self.run.offline.validation_samples
