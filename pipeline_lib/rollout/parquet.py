"""Rollouts as Arrow tables, one row a trajectory; what goes in comes out equal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline_lib.records import RolloutGroup, Trajectory

_FIELDS: list[pa.Field[Any]] = [
    pa.field("prompt_id", pa.string(), nullable=False),
    pa.field("sample_index", pa.int32(), nullable=False),
    pa.field("prompt_token_ids", pa.list_(pa.int32()), nullable=False),
    pa.field("completion_token_ids", pa.list_(pa.int32()), nullable=False),
    pa.field("behaviour_logprobs", pa.list_(pa.float32()), nullable=False),
    pa.field("finish_reason", pa.string(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
    pa.field("reward", pa.float64()),
    pa.field("correct", pa.bool_(), nullable=False),
    pa.field("verifier_status", pa.string(), nullable=False),
]
ROLLOUT_SCHEMA = pa.schema(_FIELDS)
ROLLOUT_ENCODING: dict[str, Any] = {"compression": "zstd", "compression_level": 9, "use_dictionary": False}
"""pyarrow's options for writing such tables, chosen by size and reading time (benchmarks/storage.py): log-probs hardly
repeat, so that a dictionary of them is a second copy, and zstd finds the repeated prompts by itself."""


def groups_to_table(groups: Sequence[RolloutGroup]) -> pa.Table:
    trajectories = [t for group in groups for t in group.trajectories]
    columns = {name: [getattr(t, name) for t in trajectories] for name in ROLLOUT_SCHEMA.names}
    return pa.table(columns, schema=ROLLOUT_SCHEMA)


def groups_from_table(table: pa.Table) -> list[RolloutGroup]:
    """Groups in the table's order; the rows of a group stand together, and have a sample_index each.

    A training step may roll a prompt out twice: the first sample_index that comes again begins the next group.
    """
    groups: list[dict[int, Trajectory]] = []
    prompt_id = None
    for row in table.select(ROLLOUT_SCHEMA.names).to_pylist():
        trajectory = _trajectory(row)
        if trajectory.prompt_id != prompt_id or trajectory.sample_index in groups[-1]:
            prompt_id = trajectory.prompt_id
            groups.append({})
        groups[-1][trajectory.sample_index] = trajectory
    return [RolloutGroup(next(iter(group.values())).prompt_id, tuple(group.values())) for group in groups]


def read_groups(
    file: Path | str, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> list[RolloutGroup]:
    """Groups of one Parquet file: of the prompts `only`, where given, and not of those in `without`."""
    table = pq.ParquetFile(file).read()
    if only is not None:
        table = table.filter(_among(table, only))
    if without:
        table = table.filter(pc.invert(_among(table, without)))
    return groups_from_table(table)


def read_prompt_ids(file: Path | str) -> list[str]:
    """The prompts of one Parquet file of groups."""
    ids: list[str] = pq.ParquetFile(file).read(columns=["prompt_id"])["prompt_id"].unique().to_pylist()
    return ids


def _among(table: pa.Table, prompt_ids: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(table["prompt_id"], pa.array(sorted(prompt_ids), pa.string()))


def _trajectory(row: dict[str, Any]) -> Trajectory:
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    return Trajectory(**values)
