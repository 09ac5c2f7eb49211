"""Parquet files that are there whole or not at all."""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_file

CHECKSUM = b"rlsift:crc32"
"""Parquet has checksums of pages and none of its footer, where the names and types of columns and the number of rows
are."""


def write_parquet(path: Path, table: pa.Table) -> None:
    """Replace `path` by `table`; a reader sees the old rows or the new."""
    empty = pa.BufferOutputStream()
    pq.write_table(table.schema.empty_table(), empty)  # what is read back names the items of lists otherwise
    checksum = _checksum(pq.read_schema(pa.BufferReader(empty.getvalue())), table.num_rows)
    metadata = {**(table.schema.metadata or {}), CHECKSUM: checksum}
    with new_file(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd", write_page_checksum=True)


def is_whole(path: Path) -> bool:
    """Whether the file is there with the columns and pages that were written, by their checksums.

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
            n_rows = sum(file.read_row_group(number).num_rows for number in range(file.num_row_groups))
            written = (file.schema_arrow.metadata or {}).get(CHECKSUM)
            return written is None or written == _checksum(file.schema_arrow, n_rows)
    except (OSError, ValueError):  # ArrowInvalid, and a name that is no UTF-8
        return False


def _checksum(schema: pa.Schema, n_rows: int) -> bytes:
    names_and_types = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return b"%08x" % zlib.crc32(f"{n_rows} {names_and_types}".encode())
