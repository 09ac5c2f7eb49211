"""Rows of .jsonl, .json, .csv and .parquet files, one at a time, each with its index; a bad row is a BadRow.

All but Parquet may be compressed: .jsonl.gz.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import pyarrow as pa
import pyarrow.parquet

from pipeline_lib.prompts.csv_rows import parse_csv
from pipeline_lib.prompts.rows import BadRow, Row, short

BATCH = 1024
KINDS = (".jsonl", ".json", ".csv", ".parquet")

Rows = Iterator[tuple[int, Row | BadRow]]


def read_rows(path: Path) -> Rows:
    """Index is the line's number from 0 in .jsonl, else the row's. ValueError for a file of another kind."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; paths are relative to the config file")
    kind = _kind(path)
    if kind == ".parquet":
        return _read_parquet(path)
    if kind not in KINDS:
        names = ", ".join(KINDS)
        raise ValueError(f"{path}: the name must end in {names}; convert the file or rename it to what it is")
    return _read_text(path, kind)


def stem_of(path: Path) -> str:
    """The file's name without what says its kind: `train` of train.jsonl.gz."""
    return Path(path.name.removesuffix(".gz")).stem


def _kind(path: Path) -> str:
    kind = Path(path.name.removesuffix(".gz")).suffix
    return ".parquet.gz" if kind == ".parquet" and path.suffix == ".gz" else kind


def _read_text(path: Path, kind: str) -> Rows:
    index = -1
    try:
        with _open(path) as file:
            for index, row in _PARSERS[kind](path, file):
                yield index, row
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: not readable as gzip after row {index}: {error}; copy the file anew") from None


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _parse_jsonl(path: Path, lines: IO[bytes]) -> Rows:
    for index, line in enumerate(lines):
        if not line.isspace():
            yield index, _parse_line(line.removeprefix(b"\xef\xbb\xbf"))


def _parse_line(line: bytes) -> Row | BadRow:
    try:
        return _as_row(_decode(line.decode()))
    except UnicodeDecodeError as error:
        return BadRow("not_utf8", f"byte {error.start} of the line is not UTF-8")
    except (ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else " (the file's last line, without a line end: it may be cut off)"
        return BadRow("not_json", f"{error} in {short(line)}{torn}")


def _parse_json(path: Path, file: IO[bytes]) -> Rows:
    try:
        rows = _decode(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not readable as JSON: {error}; if each line is an object of its own, name it .jsonl"
        ) from None
    if not isinstance(rows, list):
        raise ValueError(f"{path}: a .json file must be a list of objects, found {type(rows).__name__}")
    for index, row in enumerate(rows):
        yield index, _as_row(row)


def _read_parquet(path: Path) -> Rows:
    index = 0
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{path}: each column must have its own name; more than one is {', '.join(twice)}")
            for batch in file.iter_batches(batch_size=BATCH):
                for row in batch_rows(batch):
                    yield index, row
                    index += 1
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not readable as Parquet at row {index}: {error}; write the file anew") from None


def batch_rows(batch: pa.RecordBatch) -> Iterator[Row | BadRow]:
    """The rows of an Arrow batch, whichever way its nested values are stored. Times are text."""
    batch = _readable(batch)
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for i in range(batch.num_rows):
            yield _arrow_row(batch.slice(i, 1))


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times of any year and zone as text, and 0.1 in 32 bits as 0.1: Python's own types hold neither."""
    written = pa.schema([field.with_type(_converted(field.type, _written)) for field in batch.schema])
    read = pa.schema([field.with_type(_converted(field.type, _read)) for field in batch.schema])
    return batch if read == batch.schema else batch.cast(written).cast(read)


def _written(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return pa.string() if pa.types.is_float32(kind) else kind


def _read(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    return pa.float64() if pa.types.is_float32(kind) else kind


def _converted(kind: pa.DataType, to: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with all that are nested in it converted."""
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_converted(kind.field(i).type, to)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_converted(kind.value_type, to)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_converted(kind.value_type, to)))
    return to(kind)


def _arrow_row(batch: pa.RecordBatch) -> Row | BadRow:
    try:
        row: Row = batch.to_pylist()[0]
        return row
    except UnicodeDecodeError as error:
        return BadRow("not_utf8", f"byte {error.start} of a value is not UTF-8")


def _as_row(value: Any) -> Row | BadRow:
    return value if isinstance(value, dict) else BadRow("not_object", f"a row must be an object, found {short(value)}")


def _object(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"an object names {next(key for key in keys if keys.count(key) > 1)!a} twice")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# json.loads would make a decoder of its own for each line.
_decode = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object).decode
_PARSERS = {".jsonl": _parse_jsonl, ".json": _parse_json, ".csv": parse_csv}
