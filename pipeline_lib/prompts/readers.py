"""Rows of .jsonl, .json and .parquet files, one at a time, each with its index; a bad row is a BadRow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet

from pipeline_lib.prompts.rows import BadRow, Row, short

BATCH = 1024


def read_rows(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    """Index is the line's number from 0 in .jsonl, else the row's. ValueError for a file of another kind."""
    if path.suffix not in READERS:
        raise ValueError(
            f"{path}: the name must end in {', '.join(READERS)}; convert the file or rename it to what it is"
        )
    if not path.is_file():
        raise ValueError(f"{path}: no such file; paths are relative to the config file")
    return READERS[path.suffix](path)


def _read_jsonl(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    with path.open("rb") as lines:
        for index, line in enumerate(lines):
            if line.strip():
                yield index, _parse_line(line.removeprefix(b"\xef\xbb\xbf"))


def _parse_line(line: bytes) -> Row | BadRow:
    try:
        return _as_row(json.loads(line.decode(), parse_constant=_refuse_constant))
    except UnicodeDecodeError as error:
        return BadRow("not_utf8", f"byte {error.start} of the line is not UTF-8")
    except (ValueError, RecursionError) as error:
        return BadRow("not_json", f"{error} in {short(line)}")


def _read_json(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not readable as JSON: {error}; if each line is an object of its own, name it .jsonl"
        ) from None
    if not isinstance(rows, list):
        raise ValueError(f"{path}: a .json file must be a list of objects, found {type(rows).__name__}")
    for index, row in enumerate(rows):
        yield index, _as_row(row)


def _read_parquet(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    index = 0
    try:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                for row in _batch_rows(batch):
                    yield index, row
                    index += 1
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not readable as Parquet at row {index}: {error}; write the file anew") from None


def _batch_rows(batch: pa.RecordBatch) -> Iterator[Row | BadRow]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for i in range(batch.num_rows):
            yield _parquet_row(batch.slice(i, 1))


def _parquet_row(batch: pa.RecordBatch) -> Row | BadRow:
    try:
        row: Row = batch.to_pylist()[0]
        return row
    except UnicodeDecodeError as error:
        return BadRow("not_utf8", f"byte {error.start} of a value is not UTF-8")


def _as_row(value: Any) -> Row | BadRow:
    return value if isinstance(value, dict) else BadRow("not_object", f"found {short(value)}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".parquet": _read_parquet}
