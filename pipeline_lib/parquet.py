"""Parquet files that are there whole or not at all, and say themselves which bytes were written."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_lib.atomic import new_file

MARK = b"rlsift:sha256:"
"""What stands in the footer before the digest of the whole file, taken while the digest itself was BLANK. Parquet has
checksums of pages and none of its footer, where the names and types of columns and the number of rows are."""
BLANK = b"0" * 64


def write_parquet(path: Path, table: pa.Table) -> None:
    """Replace `path` by `table`; a reader sees the old rows or the new."""
    with new_file(path) as temporary:
        write_marked(temporary, table)


def write_marked(path: Path, table: pa.Table, **encoding: Any) -> None:
    """Write the new file `path`, for `is_whole` to tell; `encoding` holds options of pyarrow's writer.

    The caller sees to it that nobody meets half a file.
    """
    encoding = {"compression": "zstd", "write_page_checksum": True} | encoding
    with pq.ParquetWriter(path, table.schema, **encoding) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"rlsift": (MARK + BLANK).decode()})
    _, digest, place = _digests(path.read_bytes())
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest)


def is_whole(path: Path) -> bool:
    """Whether the file is there with the bytes that were written.

    One of an older rlsift has the checksums of its pages alone. A file that the file system calls unchanged is not read
    again by the same process.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return _is_whole(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=100_000)
def _is_whole(path: Path, inode: int, size: int, modified: int) -> bool:
    content = path.read_bytes()
    if MARK in content:
        written, digest, _ = _digests(content)
        return written == digest
    try:
        pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read()
    except (OSError, ValueError):  # ArrowInvalid, and a name that is no UTF-8
        return False
    return True


def _digests(content: bytes) -> tuple[bytes, bytes, int]:
    """The digest that stands in a marked file, the one of its bytes, and where the first stands."""
    place = content.rindex(MARK) + len(MARK)
    end = place + len(BLANK)
    digest = hashlib.sha256(content[:place] + BLANK + content[end:]).hexdigest()
    return content[place:end], digest.encode(), place
