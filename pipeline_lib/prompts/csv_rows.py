"""Rows of a .csv file: a header, commas, quotes as in RFC 4180; every value is text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pipeline_lib.prompts.rows import BadRow, Row, short

# Its 128 KiB would cut a longer value, such as a program's tests, into rows of their own.
csv.field_size_limit(2**31 - 1)


def parse_csv(path: Path, file: IO[bytes]) -> Iterator[tuple[int, Row | BadRow]]:
    """Index is the row's number from 0, the header not counted.

    ValueError for a header that names a column twice, and for a quote that swallows the lines to the file's end.
    """
    # Bytes that are not UTF-8 become lone surrogates, which the formats refuse row by row.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, strict=True)
    header: list[str] | None = None
    index = 0
    while True:
        first = rows.line_num + 1
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error) and rows.line_num > first:
                raise ValueError(
                    f"{path}: a quote is opened in the row of line {first} and never closed, so that all lines up to "
                    f"{rows.line_num} are one value; close it, or double the quotes that belong to a value"
                ) from None
            yield index, BadRow("not_csv", f"{error} in lines {first} to {rows.line_num}")
            index += 1
            continue
        if header is None:
            header = _checked(path, values)
        elif values:  # an empty line is none
            yield index, _row(header, values)
            index += 1


def _checked(path: Path, header: list[str]) -> list[str]:
    if len(set(header)) < len(header) or not all(header):
        raise ValueError(f"{path}: the first line must name each column once, found {', '.join(map(repr, header))}")
    return header


def _row(header: list[str], values: list[str]) -> Row | BadRow:
    if len(values) != len(header):
        return BadRow("not_csv", f"{len(values)} values for {len(header)} columns in {short(values)}")
    return dict(zip(header, values, strict=True))
