"""Rows of a query as a table on the terminal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text


def rich_table(rows: pa.Table, title: str | None = None) -> Table:
    table = Table(title=None if title is None else Text(title, "table.title"), title_justify="left")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
