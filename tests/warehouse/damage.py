"""What a disk, or another program, does to a root."""

from __future__ import annotations

from pathlib import Path

import duckdb

from warehouse import Warehouse


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def in_duckdb(warehouse: Warehouse, sql: str) -> None:
    """Run SQL on the live database, as somebody does who has opened it with a client of their own."""
    with duckdb.connect(str(warehouse.path)) as connection:
        connection.execute(sql)
