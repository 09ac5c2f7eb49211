"""Atomic Parquet files: a shard is there whole or not at all, and its hash says that it is still the same."""

import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.files import fsync_directory


@dataclass(frozen=True)
class ShardFile:
    """One finished Parquet file; `sha256` is the hex digest of its bytes."""

    path: Path
    n_rows: int
    n_bytes: int
    sha256: str


ZSTD: Mapping[str, Any] = MappingProxyType({"compression": "zstd"})


def write_shard(
    path: Path, table: pa.Table, metadata: Mapping[str, str], encoding: Mapping[str, Any] = ZSTD
) -> ShardFile:
    """Write `table`, with `metadata` in the footer, to `path` in place of what was there.

    `encoding` holds options of pyarrow's Parquet writer.

    The same rows and metadata give the same bytes. After an error or a kill, `path` is as it was before; what
    a kill leaves behind starts with a dot and ends in .tmp, which no reader of *.parquet sees.
    """
    if path.suffix != ".parquet":
        raise ValueError(f"a shard's name must end in .parquet: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            pq.write_table(table.replace_schema_metadata(dict(metadata)), file, **encoding)
            file.flush()
            os.fsync(file.fileno())
        shard = ShardFile(path, table.num_rows, temporary.stat().st_size, _sha256(temporary))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)
    return shard


def read_shard(path: Path) -> pa.Table:
    """All rows of one shard; no column is made out of its folders' names."""
    with pq.ParquetFile(path) as file:
        return file.read()


def shard_metadata(path: Path) -> dict[str, str]:
    """The metadata that the shard was written with."""
    return {key.decode(): value.decode() for key, value in (pq.read_schema(path).metadata or {}).items()}


def verify_shard(path: Path, sha256: str) -> bool:
    """Whether the file is there with exactly the bytes that `sha256` was taken of.

    A file that the file system calls unchanged is not read again by the same process.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return _sha256_of(path, status.st_ino, status.st_size, status.st_mtime_ns) == sha256


@lru_cache(maxsize=100_000)
def _sha256_of(path: Path, inode: int, size: int, modified: int) -> str:
    return _sha256(path)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
