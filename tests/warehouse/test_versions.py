"""Every version's tables are kept in versions/, with a few rows, and brought up to those of this code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from warehouse_rows import stats

from warehouse import Warehouse
from warehouse.tables import KEYS, OWN_TABLES, WRITABLE
from warehouse.versions import SCHEMA_VERSION

HERE = Path(__file__).parent
VERSIONS = sorted((HERE / "versions").glob("*.sql"))
EARLIER = [path for path in VERSIONS if int(path.stem[:4]) < SCHEMA_VERSION]
COLUMNS = """
    SELECT table_name, column_index, column_name, data_type, is_nullable FROM duckdb_columns()
    WHERE table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY ALL
"""
INDEXES = "SELECT table_name FROM duckdb_tables() WHERE index_count > 0"
KILLED = f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(HERE.parents[1])!r})
from warehouse import Warehouse, versions, warehouse

def die(connection):
    if sys.argv[2] == "in the migration":
        connection.begin()
        connection.execute(versions.MIGRATIONS[2])
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "in the migration":
    warehouse.define = die
else:
    versions.gather_finished = die
Warehouse(Path(sys.argv[1])).write({{}})
"""


def written_by(version: Path, root: Path) -> Warehouse:
    warehouse = Warehouse(root)
    with duckdb.connect(str(warehouse.path)) as connection:
        connection.execute(version.read_text())
    return warehouse


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """By table, what others than the warehouse itself have written."""
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {
            name: connection.execute(f"FROM {name} ORDER BY ALL").to_arrow_table().to_pylist()
            for name in names
            if name not in OWN_TABLES
        }


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("new"))
    warehouse.write({})
    return warehouse


def test_every_table_has_a_key_of_its_own_columns_that_are_never_null(new: Warehouse) -> None:
    found = new.query(COLUMNS).to_pylist()
    assert set(KEYS) == {row["table_name"] for row in found}
    never_null = {(row["table_name"], row["column_name"]) for row in found if not row["is_nullable"]}
    assert {(name, column) for name, key in KEYS.items() for column in key} <= never_null


def test_the_tables_are_those_kept_for_their_version(new: Warehouse, tmp_path: Path) -> None:
    """Who changes a table adds migrations/NNNN_WHAT.sql, which makes it of the one before, and versions/NNNN.sql."""
    assert [int(path.stem[:4]) for path in VERSIONS][-1] == SCHEMA_VERSION
    kept = written_by(VERSIONS[-1], tmp_path)
    with duckdb.connect(str(kept.path)) as connection:
        columns = connection.execute(COLUMNS).to_arrow_table()
    assert columns.to_pylist() == new.query(COLUMNS).to_pylist()
    kept.write({})
    assert not list(tmp_path.glob("*version*")), "no copy of what is not older"


@pytest.mark.parametrize("version", EARLIER, ids=lambda path: path.stem)
def test_an_earlier_version_becomes_as_one_made_new_and_keeps_its_rows(
    version: Path, new: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warehouse = written_by(version, tmp_path)
    before = rows_of(warehouse.path)
    warehouse.write({})

    assert warehouse.query(COLUMNS) == new.query(COLUMNS)
    assert warehouse.query(INDEXES).num_rows == 0
    after = rows_of(warehouse.path)
    assert sorted(after) == WRITABLE
    for name, rows in after.items():
        then = before.get(name, [])
        assert [{column: row[column] for column in then[0]} for row in rows] == then if then else rows == []
        added = {column for row in rows for column in row if column not in then[0]}
        assert all(row[column] is None for row in rows for column in added)
    copy = tmp_path / f"warehouse.version-{int(version.stem[:4])}.duckdb"
    assert str(copy) in caplog.text
    assert rows_of(copy) == before

    again = Warehouse(tmp_path / "again")
    again.write({name: warehouse.query(f"FROM {name}") for name in WRITABLE})
    for view in ("prompt_totals", "decision_totals", "prompt_paths", "stage_summary"):
        asked = f"FROM {view} ORDER BY ALL"
        assert warehouse.query(asked) == again.query(asked)
    ungathered = warehouse.query("FROM ungathered ORDER BY ALL")
    assert ungathered == again.query("FROM ungathered ORDER BY ALL")
    assert ungathered.num_rows == 1, "one of the two steps with rows is completed"


@pytest.mark.parametrize("when", ["in the migration", "after it"])
def test_one_killed_over_its_migration_is_brought_up_by_the_next(when: str, new: Warehouse, tmp_path: Path) -> None:
    [*_, last_of_version_1] = [path for path in VERSIONS if path.stem.startswith("0001")]
    warehouse = written_by(last_of_version_1, tmp_path)
    before = rows_of(warehouse.path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), when]
    killed = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    with duckdb.connect(str(warehouse.path)) as connection:
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    assert version == ("1" if when == "in the migration" else str(SCHEMA_VERSION),)
    brought_up = before | {
        "relevances": [],
        "prompt_states": [],
        "selections": [{**row, "pass_rate": None} for row in before["selections"]],
    }
    assert rows_of(warehouse.path) == (before if when == "in the migration" else brought_up)
    warehouse.write({})
    assert warehouse.query(COLUMNS) == new.query(COLUMNS)
    assert rows_of(warehouse.path) == brought_up
    assert rows_of(tmp_path / "warehouse.version-1.duckdb") == before


@pytest.mark.parametrize(
    "history",
    [
        {"rollouts_train_0": "later", "history_0": "offline", "history_1": "train"},
        {"rollouts_train": "offline", "train_1": "train"},
    ],
    ids=["version 3", "the first"],
)
def test_what_selections_knew_is_that_of_their_history(tmp_path: Path, history: dict[str, str]) -> None:
    """Offline a 1/4, b 2/4, c ungraded; of the second history step a 0/4 then 3/4; a later step was not known."""
    inputs = json.dumps({"ingest": "i", "history_of": "no step"} | history)
    with duckdb.connect(str(written_by(HERE / "versions" / "0003.sql", tmp_path).path)) as connection:
        connection.execute("DELETE FROM selections; DELETE FROM rollout_stats")
        connection.execute(
            "INSERT INTO steps BY NAME SELECT 'selection' AS fingerprint, 'select' AS name, 'completed' AS status, "
            "'{}' AS settings, $1 AS inputs, 1 AS attempts, now() AS started_at",
            [inputs],
        )
        connection.execute(
            "INSERT INTO selections SELECT 'selection', unnest(['a', 'b', 'c']), 'all', 0, 1, true, 'why'"
        )
        seen = [
            ("offline", "a", 0, 4, 1),
            ("offline", "b", 0, 4, 2),
            ("offline", "c", 0, 0, 0),
            ("train", "a", 1, 4, 0),
            ("train", "a", 2, 4, 3),
            ("later", "a", 3, 4, 4),
        ]
        for fingerprint, prompt_id, step, n, n_correct in seen:
            row = stats(fingerprint, prompt_id, n_correct, step=step, n=n)
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO rollout_stats ({names}) VALUES ({marks})", list(row.values()))
    warehouse = Warehouse(tmp_path)
    warehouse.write({})
    known = warehouse.query("SELECT prompt_id, pass_rate FROM selections ORDER BY 1").to_pylist()
    assert [tuple(row.values()) for row in known] == [("a", 0.75), ("b", 0.5), ("c", None)]
