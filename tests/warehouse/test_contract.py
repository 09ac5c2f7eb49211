"""What a write promises, for every table, against a dictionary of rows by key."""

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse import WarehouseError
from warehouse.tables import KEYS, WRITABLE, write_rows
from warehouse.versions import DEFINITION

TYPES = {
    "VARCHAR": (pa.string(), ["", "a", "it's", "é" * 20]),
    "JSON": (pa.string(), ["{}", "[1]"]),
    "INTEGER": (pa.int32(), [-1, 0, 7]),
    "BIGINT": (pa.int64(), [0, 1 << 40]),
    "DOUBLE": (pa.float64(), [-0.5, 0.0, 1e300]),
    "FLOAT[]": (pa.list_(pa.float32()), [[], [0.5, -2.0], [0.25]]),
    "BOOLEAN": (pa.bool_(), [False, True]),
    "TIMESTAMP WITH TIME ZONE": (pa.timestamp("us", "UTC"), [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
}
COLUMNS = """
    SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index
"""
Row = dict[str, Any]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    connection.execute(DEFINITION)
    return connection


class Model:
    """A table as a dictionary."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        found = connection.execute(COLUMNS, [name]).fetchall()
        self.types = {column: TYPES[kind] for column, kind, _ in found}
        self.never_null = [column for column, _, nullable in found if not nullable]
        self.key = KEYS[name]
        self.rows: dict[tuple[Any, ...], Row] = {}

    def write(self, rows: list[Row], fingerprint: str | None, instead: bool) -> bool:
        """Whether it is accepted; otherwise nothing changes."""
        if fingerprint is not None:
            rows = [{**row, "fingerprint": fingerprint} for row in rows]
        keys = [tuple(row[column] for column in self.key) for row in rows]
        kept = {k: r for k, r in self.rows.items() if not (instead and r["fingerprint"] == fingerprint)}
        for key, row in zip(keys, rows, strict=True):
            kept[key] = dict.fromkeys(self.types) | kept.get(key, {}) | row
        if len(set(keys)) < len(keys) or any(
            row[column] is None for row in kept.values() for column in self.never_null
        ):
            return False
        self.rows = kept
        return True

    def table(self, rows: list[Row], columns: list[str]) -> pa.Table:
        return pa.table({column: pa.array([row[column] for row in rows], self.types[column][0]) for column in columns})


def written(data: st.DataObject, model: Model) -> tuple[list[Row], list[str], str | None, bool]:
    """Rows of one write, the columns that it names, the fingerprint that it gives them, and whether instead."""
    left_out = data.draw(st.sets(st.sampled_from(sorted(set(model.types) - set(model.key))), max_size=2))
    fingerprint = data.draw(st.sampled_from([None, "a", "it's"])) if "fingerprint" in model.types else None
    left_out |= {"fingerprint"} if fingerprint is not None else set()
    columns = [column for column in model.types if column not in left_out]
    values = {}
    for column in columns:
        choices = st.sampled_from(model.types[column][1][: 2 if column in model.key else None])
        values[column] = choices if column in model.never_null else st.none() | choices
    rows = data.draw(st.lists(st.fixed_dictionaries(values), max_size=3))
    return rows, columns, fingerprint, fingerprint is not None and data.draw(st.booleans())


@pytest.mark.parametrize("name", WRITABLE)
@settings(max_examples=10)
@given(data=st.data())
def test_a_table_is_a_dictionary_of_its_rows_by_key(
    connection: duckdb.DuckDBPyConnection, name: str, data: st.DataObject
) -> None:
    connection.execute(f"DELETE FROM {name}")
    model = Model(connection, name)
    for _ in range(data.draw(st.integers(1, 4))):
        rows, columns, fingerprint, instead = written(data, model)
        times = data.draw(st.integers(1, 2), label="the same write so often")
        accepted = model.write(rows, fingerprint, instead)
        for _ in range(times):
            connection.begin()
            try:
                table = model.table(rows, columns)
                write_rows(connection, name, table, fingerprint=fingerprint, instead=instead)
                connection.commit()
                assert accepted
            except (duckdb.Error, WarehouseError):
                connection.rollback()
                assert not accepted
    found = connection.execute(f"FROM {name}").to_arrow_table().to_pylist()
    assert len(found) == len(model.rows)
    assert {tuple(row[column] for column in model.key): row for row in found} == model.rows
