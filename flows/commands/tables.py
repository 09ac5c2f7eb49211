"""Rows of a query as a table on the terminal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.markup import escape
from rich.table import Table


def rich_table(rows: pa.Table, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(escape(_shown(value)) for value in row))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
