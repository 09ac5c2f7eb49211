"""The records that training steps have left: which are there, and what is in them. Costs no import of torch."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.parquet import is_whole

TABLES = ("train_steps", "sampler_decisions", "rollout_stats")


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
    """Rows by warehouse table, without the fingerprint, which the task that launched the worker knows.

    Raises ValueError where a file is not as it was written.
    """
    files = {name: directory / f"step-{step:06d}" / f"{name}.parquet" for name in TABLES}
    for file in files.values():
        if not is_whole(file):
            raise ValueError(
                f"{file} is gone, or its bytes are not those that were written; remove {directory.parent}, and the "
                "stage is trained from its beginning"
            )
    return {name: pq.read_table(file) for name, file in files.items()}


def read_train_row(directory: Path, step: int) -> dict[str, Any]:
    """The step's row of train_steps alone."""
    # `pq.read_table` imports pandas where it is installed.
    with pq.ParquetFile(directory / f"step-{step:06d}" / "train_steps.parquet") as file:
        row: dict[str, Any] = file.read().to_pylist()[0]
    return row
