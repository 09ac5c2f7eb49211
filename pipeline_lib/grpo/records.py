"""What a training step leaves behind: one Parquet file per warehouse table, in a directory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_directory, write_text
from pipeline_lib.parquet import write_marked
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import ROLLOUT_ENCODING, groups_to_table, rollout_stats

if TYPE_CHECKING:
    from pipeline_lib.grpo.fill import StepBatch

DECISIONS_SCHEMA = pa.schema(
    [
        ("step", pa.int32()),
        ("position", pa.int32()),
        ("prompt_id", pa.string()),
        ("epoch", pa.int32()),
        ("round", pa.int32()),
        ("keep", pa.bool_()),
        ("keep_probability", pa.float64()),
        ("reason", pa.string()),
    ]
)


def write_step_records(
    directory: Path, step: int, train_step: dict[str, Any], batch: StepBatch, policy_id: str
) -> None:
    """Write `directory/step-NNNNNN/`: train_steps, sampler_decisions, rollout_stats, and the trajectories."""
    decisions = [
        {"step": step, "position": position, **decision._asdict()} for position, decision in enumerate(batch.decisions)
    ]
    with new_directory(directory / f"step-{step:06d}") as path:
        write_marked(path / "train_steps.parquet", pa.Table.from_pylist([{"step": step, **train_step}]))
        write_marked(path / "sampler_decisions.parquet", pa.Table.from_pylist(decisions, DECISIONS_SCHEMA))
        stats = rollout_stats(batch.rolled_out, step=step, phase="train", policy_id=policy_id)
        write_marked(path / "rollout_stats.parquet", stats)
        write_marked(path / "rollouts.parquet", groups_to_table(batch.rolled_out), **ROLLOUT_ENCODING)


def write_non_finite_batch(directory: Path, step: int, groups: Sequence[RolloutGroup], what: str) -> None:
    """Write `directory/step-NNNNNN/`: the groups whose update was not applied, and why."""
    with new_directory(directory / f"step-{step:06d}") as path:
        pq.write_table(groups_to_table(groups), path / "rollouts.parquet", **ROLLOUT_ENCODING)
        write_text(path / "what.txt", what + "\n")
