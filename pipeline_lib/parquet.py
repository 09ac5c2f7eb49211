"""Parquet files that are there whole or not at all."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_file


def write_parquet(path: Path, table: pa.Table) -> None:
    """Replace `path` by `table`; a reader sees the old rows or the new."""
    with new_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def is_whole(path: Path) -> bool:
    """Whether the file is there with the pages that were written, by their checksums.

    A file that the file system calls unchanged is not read again by the same process.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return _is_whole(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=100_000)
def _is_whole(path: Path, inode: int, size: int, modified: int) -> bool:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                file.read_row_group(number)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
