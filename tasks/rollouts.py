"""Collecting rollout groups of a policy, shard by shard; a finished shard is never redone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from pipeline_lib.atomic import remove_unfinished
from pipeline_lib.records import Prompt, RolloutGroup
from tasks.prompt_rows import load_prompts
from tasks.step import Done, Step, Work, Workshop
from warehouse import Warehouse
from warehouse.lake import read_shard, verify_shard, write_shard

if TYPE_CHECKING:
    from pipeline_lib.rollout.stats import Phase


@dataclass(frozen=True)
class RolloutStep(Step):
    """A step that samples `samples` completions of each of its prompts from one policy, into the lake."""

    ingest: Done
    policy: Done

    split: ClassVar[Literal["train", "validation", "evaluation"]]
    phase: ClassVar[Phase]

    @property
    def samples(self) -> int:
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        generation = self.run.generation.model_dump(mode="json", exclude={"max_prompt_tokens"})
        return {
            "generation": generation,
            "samples": self.samples,
            "split": self.split,
            "prompts_per_shard": self.run.offline.prompts_per_shard,
            "dtype": self.run.dtype,
            "seed": self.run.seed,
        }

    def inputs(self) -> dict[str, str]:
        return {"ingest": self.ingest.fingerprint, "policy": self.policy.outputs["policy_id"]}

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        whole = {row["path"] for row in _shards(Warehouse(self.root), self.fingerprint) if _is_whole(self.root, row)}
        return [path for path in outputs["shards"] if path not in whole]

    def left_over(self) -> str:
        n = len(list((self.root / self._shard_path(self.fingerprint, 0)).parent.glob("shard-*.parquet")))
        return f"{n} finished shard{'s' if n > 1 else ''}" if n else ""

    def work(self, at: Workshop) -> Work:
        return Work({"shards": self.roll_out_all(at)})

    def roll_out_all(self, at: Workshop) -> list[str]:
        """Make sure that every shard is in the lake and recorded; paths relative to the root."""
        prompts = self.prompts(at)
        size = self.run.offline.prompts_per_shard
        shards = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        remove_unfinished((self.root / self._shard_path(at.fingerprint, 0)).parent)
        recorded = _shards(at.warehouse, at.fingerprint)
        finished = {row["shard_index"] for row in recorded if _is_whole(self.root, row)}
        n_finished = sum(len(shards[i]) for i in finished)
        at.reporter.start(self.label, len(prompts), "prompts", done=n_finished)
        for row in recorded:
            if row["shard_index"] not in finished:
                at.reporter.say(
                    f"{self.label}: {row['path']} is gone, or its bytes are not those that were written; "
                    "it is collected again."
                )
        missing = [i for i in range(len(shards)) if i not in finished]
        if missing:
            import torch

            from pipeline_lib.policy import load_policy, resolve_device
            from pipeline_lib.rewards.grader import Grader
            from pipeline_lib.rollout import SamplingParams, make_engine, roll_out

            policy = load_policy(
                self.policy.outputs["path"],
                device=resolve_device(self.run.device),
                dtype=getattr(torch, self.run.dtype),
            )
            engine = make_engine(self.run.generation.engine, policy)
            params = SamplingParams.of(self.run.generation, self.samples)
            with Grader() as grader:
                for index in missing:
                    rollout = roll_out(policy, engine, grader.grade, shards[index], params, self.seed(index))
                    self._record_shard(at, index, rollout.groups)
                    solved = sum(g.n_correct for g in rollout.groups)
                    graded = sum(len(g.graded) for g in rollout.groups)
                    at.reporter.advance(len(rollout.groups), pass_rate=solved / max(1, graded))
        return [self._shard_path(at.fingerprint, index) for index in range(len(shards))]

    def prompts(self, at: Workshop) -> Sequence[Prompt]:
        return load_prompts(at.warehouse, self.ingest, self.split)

    def _record_shard(self, at: Workshop, index: int, groups: Sequence[RolloutGroup]) -> None:
        from pipeline_lib.rollout import groups_to_table, rollout_stats

        path = self._shard_path(at.fingerprint, index)
        metadata = {
            "fingerprint": at.fingerprint,
            "policy_id": self.policy.outputs["policy_id"],
            "engine": self.run.generation.engine,
            "temperature": str(self.run.generation.temperature),
            "top_p": str(self.run.generation.top_p),
            "max_tokens": str(self.run.generation.max_tokens),
            "seed": str(self.seed(index)),
        }
        shard = write_shard(self.root / path, groups_to_table(groups), metadata)
        row = {
            "shard_index": index,
            "path": path,
            "n_rows": shard.n_rows,
            "n_bytes": shard.n_bytes,
            "sha256": shard.sha256,
        }
        stats = rollout_stats(groups, step=0, phase=self.phase, policy_id=self.policy.outputs["policy_id"])
        at.record({"shards": pa.Table.from_pylist([row]), "rollout_stats": stats})

    @staticmethod
    def _shard_path(fingerprint: str, index: int) -> str:
        return f"lake/rollouts/{fingerprint}/shard-{index:05d}.parquet"


@dataclass(frozen=True)
class CollectTrain(RolloutStep):
    """K completions of every prompt of the pool, from the initial policy."""

    name: ClassVar[str] = "rollouts_train"
    split = "train"
    phase = "offline"

    @property
    def samples(self) -> int:
        return self.run.offline.samples


@dataclass(frozen=True)
class CollectValidation(RolloutStep):
    """Completions of the validation sets, from the initial policy."""

    name: ClassVar[str] = "rollouts_validation"
    split = "validation"
    phase = "offline"

    @property
    def samples(self) -> int:
        return self.run.offline.validation_samples


def _shards(warehouse: Warehouse, fingerprint: str) -> list[dict[str, Any]]:
    """Every shard that was recorded, also those lost since."""
    sql = "SELECT shard_index, path, sha256 FROM shards WHERE fingerprint = $1 ORDER BY shard_index"
    return warehouse.query(sql, [fingerprint]).to_pylist()


def _is_whole(root: Path, row: dict[str, Any]) -> bool:
    return verify_shard(root / row["path"], row["sha256"])


def load_groups(root: Path, rollouts: Done) -> list[RolloutGroup]:
    """All groups that a rollout step left in the lake."""
    from pipeline_lib.rollout import groups_from_table

    return [g for path in rollouts.outputs["shards"] for g in groups_from_table(read_shard(root / path))]
