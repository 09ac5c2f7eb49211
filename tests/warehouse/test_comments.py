"""Every table, view and column says in the database what it is."""

from pathlib import Path

import duckdb
import pytest
from warehouse_rows import batch

from warehouse import Warehouse, versions
from warehouse.comments import column_comments

DEFINITION = """
-- CREATE TABLE IF NOT EXISTS no (
CREATE TABLE IF NOT EXISTS t (
    a VARCHAR NOT NULL,   -- a prompt's id
    -- not a column's
    b INTEGER             -- 1, 2, ...
);
ALTER TABLE t ADD COLUMN IF NOT EXISTS c DOUBLE;
CREATE OR REPLACE VIEW v AS
WITH w AS (SELECT a, b FROM t)
SELECT
    w.a,                  -- the same
    w.b + 1 AS next,      -- the one after b
    coalesce(
        w.b,
        0
    ) AS some             -- never NULL
FROM w;
"""
UNSAID = """
    SELECT table_name FROM duckdb_tables() WHERE NOT internal AND comment IS NULL
    UNION ALL
    SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL
    UNION ALL
    SELECT table_name || '.' || column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL
"""


def test_comments_are_taken_from_behind_the_columns() -> None:
    with duckdb.connect() as connection:
        connection.execute(DEFINITION + column_comments(DEFINITION))
        found = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
    assert found == [
        ("t", "a", "a prompt's id"),
        ("t", "b", "1, 2, ..."),
        ("t", "c", None),
        ("v", "a", "the same"),
        ("v", "next", "the one after b"),
        ("v", "some", "never NULL"),
    ]


def test_every_table_view_and_column_says_what_it_is(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.publish()
    assert warehouse.ask(UNSAID).to_pylist() == []
    assert warehouse.ask("SELECT count(*) AS n FROM duckdb_columns() WHERE NOT internal")["n"][0].as_py() > 250


def test_a_warehouse_of_older_code_gets_them_at_the_next_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(versions, "DEFINITION", versions.TABLES_AND_VIEWS)
        older.setattr(versions, "DEFINITION_SHA256", "older")
        warehouse.write(batch("a"))
        warehouse.publish()
        assert warehouse.ask(UNSAID).num_rows > 250
    warehouse.bring_up_to_date()
    assert warehouse.ask(UNSAID).num_rows == 0
    assert warehouse.ask("FROM shards").num_rows == 20
