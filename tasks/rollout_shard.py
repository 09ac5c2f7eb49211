"""A shard of a rollout step, which any process that sees the run's root can roll out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.config import Generation
from pipeline_lib.kept import kept
from pipeline_lib.records import Prompt
from tasks.runners.worker import check_processes, check_sees
from warehouse.lake import ShardFile, write_shard

if TYPE_CHECKING:
    from pipeline_lib.rollout.stats import Phase


@dataclass(frozen=True)
class RolloutShard:
    """Everything that its result depends on, and where that goes: `path`, relative to `root`."""

    label: str
    index: int
    root: Path
    path: str
    fingerprint: str
    prompts: tuple[Prompt, ...]
    seed: int
    samples: int
    generation: Generation
    phase: Phase
    policy_id: str
    policy_path: str
    device: str
    dtype: str


@dataclass(frozen=True)
class FinishedShard:
    """`stats` are its rows of the warehouse's rollout_stats, one a prompt."""

    index: int
    path: str
    file: ShardFile
    stats: pa.Table
    identical: str | None
    """Where the engine gave every prompt one completion again and again: that in words."""

    @property
    def pass_rate(self) -> float:
        """Share of the graded completions that are correct."""
        return (pc.sum(self.stats["n_correct"]).as_py() or 0) / max(1, pc.sum(self.stats["n"]).as_py() or 0)


def roll_out_shard(shard: RolloutShard) -> FinishedShard:
    """Roll the prompts out and leave them in the lake. The policy is kept for the next shard.

    Raises ValueError where this process does not see the root or the policy.
    """
    check_sees(shard.root, shard.fingerprint, shard.policy_path)
    check_processes(shard.prompts)
    from pipeline_lib.rollout import ROLLOUT_ENCODING, SamplingParams, groups_to_table, rollout_stats
    from pipeline_lib.rollout.identical import identical_in_words, identical_samples
    from pipeline_lib.rollout.roller import open_roller

    generation = shard.generation
    make = partial(open_roller, shard.policy_path, device=shard.device, dtype=shard.dtype, generation=generation)
    # The id as well as the path: a directory may have been given another policy meanwhile.
    key = ("roller", shard.policy_id, shard.policy_path, shard.device, shard.dtype, generation)
    with kept(key, make) as roller:
        rollout = roller.roll_out(shard.prompts, SamplingParams.of(generation, shard.samples), shard.seed)
    metadata = {
        "fingerprint": shard.fingerprint,
        "policy_id": shard.policy_id,
        "engine": generation.engine.type,
        "temperature": str(generation.temperature),
        "top_p": str(generation.top_p),
        "max_tokens": str(generation.max_tokens),
        "seed": str(shard.seed),
    }
    file = write_shard(shard.root / shard.path, groups_to_table(rollout.groups), metadata, ROLLOUT_ENCODING)
    stats = rollout_stats(rollout.groups, step=0, phase=shard.phase, policy_id=shard.policy_id)
    identical = identical_in_words(rollout.groups) if identical_samples(rollout.groups) else None
    return FinishedShard(shard.index, shard.path, file, stats, identical)
