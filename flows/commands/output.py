"""Rows of an answer: a table on the terminal; CSV, JSON or Parquet whole, batch by batch."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from flows.commands.tables import print_rows
from flows.commands.values import readable
from pipeline_lib.atomic import new_file
from warehouse import LimitReached, WarehouseError
from warehouse.asking import Answer

MAX_TABLE_ROWS = 200
"""More rows than that belong into a file."""
FLAGS = {"seconds": "--timeout SECONDS", "memory": "--memory SIZE"}


class OutputFormat(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def limit_in_words(error: LimitReached) -> str:
    return f"{error}; ask for less, or raise {FLAGS[error.limit]}"


@contextmanager
def cancelled_by_ctrl_c(messages: Console) -> Iterator[None]:
    """Of what only reads nothing goes on: exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        messages.print("Cancelled.")
        raise SystemExit(130) from None


def print_error(messages: Console, text: str) -> None:
    messages.print(Text.assemble(("error:", "bold red"), f" {text}"), soft_wrap=True)


def check_output(form: OutputFormat, out: Path | None) -> None:
    """Raises ValueError where format and file do not go together."""
    if form == "parquet" and out is None:
        raise ValueError("--format parquet: is for a file; name it by --out FILE")
    if form == "table" and out is not None:
        raise ValueError(f"--out {out}: a table is for the terminal; give --format csv, json or parquet")


def write_answer(console: Console, answer: Answer, form: OutputFormat, out: Path | None) -> None:
    """Print a table, or write all rows to `out`, else to standard output; JSON is one object a line.

    Raises WarehouseError for what the format cannot hold: columns of one name in JSON, times beyond Python's.
    """
    names = answer.schema.names
    if form == "json" and (twice := [name for name in names if names.count(name) > 1]):
        raise WarehouseError(f"--format json: two columns are named {twice[0]!r}; tell them apart, as x AS name")
    try:
        _write(console, answer, form, out)
    except (pa.ArrowException, OverflowError) as error:
        raise WarehouseError(
            f"--format {form}: cannot hold a value of the answer ({error}); write its column as text, as x::VARCHAR"
        ) from error


def _write(console: Console, answer: Answer, form: OutputFormat, out: Path | None) -> None:
    if form == "table":
        _print_table(console, answer)
    elif form == "parquet":
        assert out is not None
        with (
            new_file(out) as path,
            open(path, "wb") as parquet,
            pq.ParquetWriter(parquet, answer.schema, compression="zstd") as writer,
        ):
            for batch in answer.batches:
                writer.write_batch(batch)
    elif out is None:
        _write_text(sys.stdout, answer, form)
    else:
        with new_file(out) as path, open(path, "w", newline="", encoding="utf-8") as file:
            _write_text(file, answer, form)


def _print_table(console: Console, answer: Answer) -> None:
    shown, n_rows = [], 0
    for batch in answer.batches:
        if n_rows < MAX_TABLE_ROWS:
            shown.append(batch.slice(0, MAX_TABLE_ROWS - n_rows))
        n_rows += batch.num_rows
    print_rows(console, pa.Table.from_batches(shown, answer.schema))
    if n_rows > MAX_TABLE_ROWS:
        console.print(f"{MAX_TABLE_ROWS} of {n_rows} rows shown; --format csv, json or parquet gives them all.")


def _write_text(file: IO[str], answer: Answer, form: OutputFormat) -> None:
    names = answer.schema.names
    writer = csv.writer(file, lineterminator="\n")
    if form == "csv":
        writer.writerow(names)
    for batch in answer.batches:
        # By column: two columns of one name are one key of a dict.
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if form == "csv":
            writer.writerows(map(_cell, row) for row in rows)
        else:
            for row in rows:
                file.write(_json(dict(zip(names, row, strict=True))) + "\n")


def _cell(value: Any) -> Any:
    return _json(value) if isinstance(value, list | dict) else readable(value)


def _json(value: Any) -> str:
    return json.dumps(_plain(readable(value)), default=str, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON knows neither NaN nor infinity, and numbers of one kind."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value
