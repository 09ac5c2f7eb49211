"""Parquet files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_file


def write_parquet(path: Path, table: pa.Table) -> None:
    """Replace `path` by `table`; a reader sees the old rows or the new."""
    with new_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def is_readable(path: Path) -> bool:
    """Whether the file is there with its footer: a cheap look, which tells a truncated one."""
    try:
        pq.read_metadata(path)
    except (FileNotFoundError, pa.ArrowInvalid):
        return False
    return True
