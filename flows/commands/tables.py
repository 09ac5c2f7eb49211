"""Rows of a query on the terminal: as a table, CSV or JSON."""

from __future__ import annotations

import csv
import json
import math
import sys
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_TABLE_ROWS = 200
"""More rows than that belong into a file."""


def print_rows(console: Console, rows: pa.Table, form: str) -> None:
    """Print to the terminal, or whole to standard output for `csv` and `json` (one object a line)."""
    if form == "json":
        for row in rows.to_pylist():
            finite = {name: None if _not_a_number(value) else value for name, value in row.items()}
            sys.stdout.write(json.dumps(finite, default=str, ensure_ascii=False) + "\n")
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(rows.column_names)
        # By column: two columns of one name are one key of a dict.
        writer.writerows(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    else:
        console.print(rich_table(rows.slice(0, MAX_TABLE_ROWS)))
        if rows.num_rows > MAX_TABLE_ROWS:
            console.print(f"{MAX_TABLE_ROWS} of {rows.num_rows} rows shown; --format csv or json gives them all.")


def rich_table(rows: pa.Table, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(escape(_shown(value)) for value in row))
    return table


def _not_a_number(value: Any) -> bool:
    """JSON knows neither NaN nor infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def _shown(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
