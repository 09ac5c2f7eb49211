"""The same statistics written otherwise: by one INSERT a row, and with SQLite. Keys are primary keys there."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from warehouse_filling import Filling

from warehouse import Warehouse

TYPES = {pa.string(): "VARCHAR", pa.int32(): "INTEGER", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}


def write_with_peers(directory: Path, filling: Filling) -> dict[str, Any]:
    """Rows a second of each; the slow ones get fewer rows."""
    directory.mkdir(parents=True)
    chosen = np.arange(min(filling.n_prompts, 100_000))
    rows = filling.statistics(chosen, range(1, 5), "train")
    rows = rows.append_column("fingerprint", pa.repeat("a" * 16, rows.num_rows))
    columns = ", ".join(f"{field.name} {TYPES[field.type]}" for field in rows.schema)
    create = f"CREATE TABLE rollout_stats ({columns}, PRIMARY KEY (fingerprint, prompt_id, step))"
    insert = f"INSERT OR REPLACE INTO rollout_stats VALUES ({', '.join('?' * rows.num_columns)})"
    found = {"Warehouse.write": _rate(rows, lambda table: Warehouse(directory / "own").write({"rollout_stats": table}))}

    few, tuples = rows.slice(0, 2000), list(zip(*rows.to_pydict().values(), strict=True))
    with duckdb.connect(str(directory / "rows.duckdb")) as connection:
        connection.execute(create)

        def one_by_one(table: pa.Table) -> None:
            connection.begin()
            for row in tuples[: table.num_rows]:
                connection.execute(insert, row)
            connection.commit()

        found["DuckDB, one INSERT a row, one transaction"] = _rate(few, one_by_one)

    for name, commits in (("one INSERT a row, each committed", True), ("one INSERT a row, one transaction", False)):
        table = few if commits else rows
        connection_ = _sqlite(directory / f"{commits}.sqlite", create, commits)

        def insert_rows(table: pa.Table, to: sqlite3.Connection = connection_) -> None:
            for row in tuples[: table.num_rows]:
                to.execute(insert, row)
            to.commit()

        found[f"SQLite, {name}"] = _rate(table, insert_rows)
    many = _sqlite(directory / "many.sqlite", create, False)

    def insert_many(table: pa.Table) -> None:
        many.executemany(insert, tuples)
        many.commit()
        many.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    found["SQLite, executemany"] = _rate(rows, insert_many)
    sizes = {
        "Warehouse": (directory / "own" / "warehouse.duckdb").stat().st_size,
        "SQLite": (directory / "many.sqlite").stat().st_size,
    }
    shutil.rmtree(directory)
    return {
        "rows_per_second": found,
        "bytes_per_row": {name: round(size / len(rows), 1) for name, size in sizes.items()},
    }


def _sqlite(path: Path, create: str, commits: bool) -> sqlite3.Connection:
    """Journalled ahead and synced at each commit, as DuckDB's log is."""
    connection = sqlite3.connect(path, isolation_level=None if commits else "DEFERRED")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(create)
    connection.commit()
    return connection


def _rate(table: pa.Table, write: Callable[[pa.Table], None]) -> int:
    started = time.perf_counter()
    write(table)
    return round(table.num_rows / (time.perf_counter() - started))
