"""rlsift schema: what the tables, views and columns are, as their comments in the database say."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console

from warehouse import Warehouse, WarehouseError

COLUMNS = """
    WITH named AS (
        SELECT table_name AS name, 'table' AS kind, comment FROM duckdb_tables() WHERE NOT internal
        UNION ALL
        SELECT view_name, 'view', comment FROM duckdb_views() WHERE NOT internal
    )
    SELECT name, kind, named.comment AS about, column_name, data_type, columns.comment
    FROM named
    JOIN duckdb_columns() AS columns ON columns.table_name = name AND NOT columns.internal
    ORDER BY kind, name, column_index
"""


def print_schema(console: Console, warehouse: Warehouse, name: str | None) -> None:
    """All tables and views, or the one of that name, with their columns. Raises WarehouseError for another name."""
    rows = warehouse.snapshot_query(COLUMNS).to_pylist()
    shown = [row for row in rows if name in (None, row["name"])]
    if not shown:
        there = ", ".join(dict.fromkeys(row["name"] for row in rows))
        raise WarehouseError(f"no table or view is named {name!r}; there are {there}")
    for _, columns in groupby(shown, key=lambda row: row["name"]):
        described = list(columns)
        first = described[0]
        _line(console, f"{first['name']} ({first['kind']}): {first['about']}")
        width = max(len(row["column_name"]) for row in described)
        for row in described:
            _line(console, f"  {row['column_name']:<{width}}  {row['data_type']:<9} {row['comment']}")


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
