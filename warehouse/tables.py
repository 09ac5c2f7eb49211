"""Rows into tables: each table has a key, and a row replaces the one of its key that is there.

The keys stand in schema.sql, and no index keeps them: with keys of text it would take four fifths of a bulk write, and
be read whole before a small one. A join hashes the incoming rows instead, and reads of the table no more than the
blocks whose smallest and largest value leave room for one of their keys: a step's rows lie together.
"""

import re
from pathlib import Path

import duckdb
import pyarrow as pa

from warehouse.errors import WarehouseError
from warehouse.totals import GATHERED, forget_written

SCHEMA = (Path(__file__).parent / "schema.sql").read_text()
TABLE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+) \(.*?^    -- Key: (.+?)$", re.DOTALL | re.MULTILINE)
KEYS = {name: tuple(key.split(", ")) for name, key in TABLE.findall(SCHEMA)}
OWN_TABLES = ("meta", "ungathered", *GATHERED.values())
"""Of the warehouse itself: they say nothing that the others do not."""
WRITABLE = sorted(KEYS.keys() - OWN_TABLES)
REPLACED = "SELECT 1 FROM {table} SEMI JOIN incoming USING ({key}) LIMIT 1"
ROW_GROUP = 122_880
"""Rows that DuckDB compresses as one. Handed to it in such batches, each core takes whole ones; otherwise parts of
groups are put together and compressed again, for half as much processor time more."""
ADD = "INSERT INTO {table} BY NAME FROM incoming"
MERGE = """
    MERGE INTO {table} USING incoming USING ({key})
    WHEN MATCHED THEN UPDATE BY NAME
    WHEN NOT MATCHED THEN INSERT BY NAME
"""


def write_rows(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table, *, fingerprint: str | None, instead: bool
) -> None:
    """`Warehouse.write` for one table, within the caller's transaction. Raises WarehouseError, duckdb.Error."""
    if name not in WRITABLE:
        raise WarehouseError(f"unknown table {name!r}; the tables are {', '.join(WRITABLE)}")
    if instead:
        for old in filter(None, (name, GATHERED.get(name))):
            connection.execute(f"DELETE FROM {old} WHERE fingerprint = $1", [fingerprint])
    columns = [row[0] for row in connection.execute(f"SELECT name FROM pragma_table_info('{name}')").fetchall()]
    if unknown := [column for column in rows.column_names if column not in columns]:
        raise WarehouseError(f"unknown columns {unknown} for {name!r}; its columns are {', '.join(columns)}")
    if fingerprint is not None and "fingerprint" in columns and "fingerprint" not in rows.column_names:
        rows = rows.append_column("fingerprint", pa.repeat(fingerprint, rows.num_rows))
    if rows.num_rows == 0:
        return
    batches = rows.combine_chunks().to_batches(max_chunksize=ROW_GROUP)
    connection.register("incoming", pa.Table.from_batches(batches))
    _refuse_two_of_a_key(connection, name)
    table_and_key = {"table": name, "key": ", ".join(KEYS[name])}
    # Rows that replace none keep their order, by which later reads and writes find them; a merged one loses it.
    replaces = connection.execute(REPLACED.format(**table_and_key)).fetchone() is not None
    connection.execute((MERGE if replaces else ADD).format(**table_and_key))
    if name in GATHERED:
        forget_written(connection)
    connection.unregister("incoming")


def _refuse_two_of_a_key(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """MERGE would insert both. Numbers are grouped several times faster than texts, so hashes are looked at first."""
    key = ", ".join(KEYS[name])
    one_of_a_hash = f"SELECT count(*) = count(DISTINCT hash({key})) FROM incoming"
    if connection.execute(one_of_a_hash).fetchone() == (True,):
        return
    twice = connection.execute(f"SELECT {key} FROM incoming GROUP BY ALL HAVING count(*) > 1").fetchone()
    if twice is not None:
        raise WarehouseError(f"cannot write to {name!r}: more than one row with ({key}) = {twice}")
