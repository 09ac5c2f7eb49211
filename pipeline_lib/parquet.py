"""Parquet files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_file


def write_parquet(path: Path, table: pa.Table) -> None:
    """Replace `path` by `table`; a reader sees the old rows or the new."""
    with new_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def is_whole(path: Path) -> bool:
    """Whether the file is there with the pages that were written, by their checksums."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                file.read_row_group(number)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
