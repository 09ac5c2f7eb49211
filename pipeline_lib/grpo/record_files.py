"""The records that training steps have left: which are there, and what is in them. Costs no import of torch."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def finished_steps(directory: Path) -> list[int]:
    """Steps whose records are there, ascending."""
    names = (re.fullmatch(r"step-(\d+)", path.name) for path in directory.glob("step-*"))
    return sorted(int(match[1]) for match in names if match)


def drop_records_after(directory: Path, step: int) -> None:
    """Remove the records of later steps."""
    for later in finished_steps(directory):
        if later > step:
            shutil.rmtree(directory / f"step-{later:06d}")


def read_step_records(directory: Path, step: int) -> dict[str, pa.Table]:
    """Rows by warehouse table, without the fingerprint, which the task that launched the worker knows."""
    path = directory / f"step-{step:06d}"
    names = ("train_steps", "sampler_decisions", "rollout_stats")
    return {name: pq.read_table(path / f"{name}.parquet") for name in names}


def read_train_row(directory: Path, step: int) -> dict[str, Any]:
    """The step's row of train_steps alone."""
    # `pq.read_table` imports pandas where it is installed.
    with pq.ParquetFile(directory / f"step-{step:06d}" / "train_steps.parquet") as file:
        row: dict[str, Any] = file.read().to_pylist()[0]
    return row
