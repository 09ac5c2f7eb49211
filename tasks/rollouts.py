"""Collecting rollout groups of a policy, shard by shard; a finished shard is never redone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from pipeline_lib.atomic import remove_unfinished
from pipeline_lib.kept import drop_kept
from pipeline_lib.records import Prompt, RolloutGroup
from pipeline_lib.selection.diagnosis import DIAGNOSIS_SCHEMA
from tasks.policy import policy_directory
from tasks.prompt_rows import load_prompts
from tasks.rollout_shard import FinishedShard, RolloutShard, roll_out_shard
from tasks.runners import open_runner
from tasks.step import Done, Step, Work, Workshop
from warehouse import Warehouse
from warehouse.lake import read_shard, verify_shard

if TYPE_CHECKING:
    from pipeline_lib.rollout.stats import Phase

IDENTICAL_SAMPLES = "identical_samples"
"""Metric of a shard in which each of `n` prompts got one completion as often as `value` says."""


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
        generation = self.run.generation.what_is_sampled()
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
        missing = [self._shard(at, i, shards[i]) for i in range(len(shards)) if i not in finished]
        if missing:
            try:
                with open_runner(self.run.task_runner) as runner:
                    for shard in runner.map(roll_out_shard, missing):
                        self._record_shard(at, shard)
                        at.reporter.advance(len(shard.stats), pass_rate=shard.pass_rate)
            finally:
                drop_kept()  # the next step may need the memory
        return [self._shard_path(at.fingerprint, index) for index in range(len(shards))]

    def prompts(self, at: Workshop) -> Sequence[Prompt]:
        return load_prompts(at.warehouse, self.ingest, self.split)

    def _shard(self, at: Workshop, index: int, prompts: Sequence[Prompt]) -> RolloutShard:
        return RolloutShard(
            label=f"{self.label} · shard {index}",
            index=index,
            root=self.root,
            path=self._shard_path(at.fingerprint, index),
            fingerprint=at.fingerprint,
            prompts=tuple(prompts),
            seed=self.seed(index),
            samples=self.samples,
            generation=self.run.generation,
            phase=self.phase,
            policy_id=self.policy.outputs["policy_id"],
            policy_path=str(policy_directory(self.root, self.policy.outputs)),
            device=self.run.device,
            dtype=self.run.dtype,
        )

    def _record_shard(self, at: Workshop, shard: FinishedShard) -> None:
        row = {
            "shard_index": shard.index,
            "path": shard.path,
            "n_rows": shard.file.n_rows,
            "n_bytes": shard.file.n_bytes,
            "sha256": shard.file.sha256,
        }
        tables = {"shards": pa.Table.from_pylist([row]), "rollout_stats": shard.stats}
        if shard.identical is not None:
            at.reporter.say(f"{self.label}, shard {shard.index}: {shard.identical}.")
            n = len(shard.stats)
            fact = {"subject": f"shard {shard.index}", "metric": IDENTICAL_SAMPLES, "value": self.samples, "n": n}
            tables["diagnoses"] = pa.Table.from_pylist([fact], schema=DIAGNOSIS_SCHEMA)
        at.record(tables)

    @staticmethod
    def _shard_path(fingerprint: str, index: int) -> str:
        return f"lake/rollouts/{fingerprint}/shard-{index:05d}.parquet"


@dataclass(frozen=True)
class CollectTrain(RolloutStep):
    """K completions of the prompts of the pool, or of some drawn at random, from the initial policy."""

    name: ClassVar[str] = "rollouts_train"
    split = "train"
    phase = "offline"

    @property
    def samples(self) -> int:
        return self.run.offline.samples

    def settings(self) -> dict[str, Any]:
        n = self.run.offline.prompts
        return super().settings() | ({} if n is None else {"prompts": n})

    def prompts(self, at: Workshop) -> Sequence[Prompt]:
        pool = super().prompts(at)
        n = self.run.offline.prompts
        if n is None or n >= len(pool):
            return pool
        return [pool[i] for i in sorted(Random(self.seed("prompts")).sample(range(len(pool)), n))]


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
