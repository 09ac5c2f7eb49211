"""Rows of a query on the terminal: a table, or where that would be too narrow to read, a block of lines for each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.commands.values import readable

UNBOUNDED = 1_000_000
CONTROLS = {code: f"\\x{code:02x}" for code in (0x1B, 0x9B)}
"""What a terminal would obey: prompts and completions are not the user's own words."""


def rich_table(rows: pa.Table, title: str | None = None) -> Table:
    table = Table(title=None if title is None else Text(title, "table.title"), title_justify="left")
    for field in rows.schema:
        numeric = any(is_(field.type) for is_ in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
        table.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def print_rows(console: Console, rows: pa.Table) -> None:
    """As a table where its words fit between the columns, else one below the other, named each time."""
    table = rich_table(rows)
    if not rows.num_rows or _least_width(console, table) <= console.width:
        console.print(table)
        return
    width = max(map(len, rows.schema.names))
    blocks = [f"{'─' * width}┬─ row {i + 1}" for i in range(rows.num_rows)]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for i, value in enumerate(column.to_pylist()):
            for j, line in enumerate(_shown(value).split("\n")):
                blocks[i] += f"\n{'' if j else name:<{width}}│ {line}"
    console.print(Text("\n".join(blocks)), soft_wrap=True)


def _least_width(console: Console, table: Table) -> int:
    """At which no word is broken."""
    return console.measure(table, options=console.options.update(max_width=UNBOUNDED)).minimum


def _shown(value: Any) -> str:
    """Six digits tell pass rates apart; what is large keeps its digits before the point."""
    match value:
        case None:
            return "—"
        case float():
            return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.15g}"
        case _:
            return str(readable(value)).translate(CONTROLS)
