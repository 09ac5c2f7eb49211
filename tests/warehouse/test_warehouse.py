"""Writes, reads and snapshots of one process."""

import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warehouse_rows import batch, evaluation, prompt, step, table

from warehouse import Warehouse, WarehouseError, versions
from warehouse import warehouse as module
from warehouse.files import exclusive_lock


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "root")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("filled"))
    warehouse.write(batch("a"))
    warehouse.publish()
    return warehouse


def count(warehouse: Warehouse, name: str) -> int:
    return warehouse.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()


def test_writing_twice_changes_nothing(warehouse: Warehouse) -> None:
    warehouse.write(batch("a"))
    once = warehouse.query("FROM shards ORDER BY ALL")
    warehouse.write(batch("a"))
    assert warehouse.query("FROM shards ORDER BY ALL") == once
    assert once.num_rows == 20


def test_rows_written_instead_leave_none_of_the_fingerprint_before(warehouse: Warehouse) -> None:
    warehouse.write(batch("a") | {"evaluations": table(evaluation("a", "targeted", 0.5))})
    warehouse.write(batch("b"))
    fewer = {"shards": batch("a", size=3)["shards"].drop_columns(["fingerprint"])}
    warehouse.write(fewer, fingerprint="a", instead=True)
    counts = warehouse.query("SELECT fingerprint, count(*) AS n FROM shards GROUP BY ALL ORDER BY 1").to_pylist()
    assert counts == [{"fingerprint": "a", "n": 3}, {"fingerprint": "b", "n": 20}]
    assert count(warehouse, "evaluations") == 1  # another table
    with pytest.raises(WarehouseError):  # and after an error they are all there still
        warehouse.write({"shards": fewer["shards"].append_column("no", pa.repeat(1, 3))}, fingerprint="b", instead=True)
    assert count(warehouse, "shards") == 23


@settings(max_examples=4)
@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), max_size=6), max_size=4))
def test_the_last_write_of_a_key_counts(filled: Warehouse, writes: list[dict[str, float]]) -> None:
    metric = uuid.uuid4().hex
    for write in writes:
        filled.write({"evaluations": table(*(evaluation(key, metric, x) for key, x in write.items()))})
    answer = filled.query("SELECT fingerprint, value FROM evaluations WHERE metric = ?", [metric]).to_pylist()
    expected = {key: value for write in writes for key, value in write.items()}
    assert {row["fingerprint"]: row["value"] for row in answer} == expected
    assert len(answer) == len(expected)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"step": table({"x": 1})}, r"unknown table 'step'; the tables are diagnoses, .*, train_steps"),
        ({"meta": table({"key": "schema_version", "value": "9"})}, "unknown table 'meta'"),
        ({"prompt_difficulty": table({"x": 1})}, "unknown table 'prompt_difficulty'"),
        (
            {"shards": table({"fingerprint": "a", "sha": "0"})},
            r"\['sha'\] for 'shards'; its columns are .*sha256",
        ),
        ({"shards": table({"fingerprint": "b", "shard_index": 0})}, "'shards': .*NOT NULL.*shards.path"),
        ({"shards": table({"path": "p"})}, "'shards': .*fingerprint"),
        ({"prompts": table({**prompt("a"), "extra": "{no"})}, "'prompts': .*Malformed JSON"),
        (
            {"evaluations": table(evaluation("a", "avg", 0.1), evaluation("a", "avg", 0.2))},
            r"'evaluations': more than one row with \(fingerprint, .*, k\) = \('a', 'gsm', 'avg', 4\)",
        ),
    ],
)
def test_a_failing_table_leaves_the_others_unwritten(
    filled: Warehouse, second: dict[str, pa.Table], words: str
) -> None:
    with pytest.raises(WarehouseError, match=words):
        filled.write({"run_steps": batch("b")["run_steps"], **second})
    assert count(filled, "run_steps") == 20


def test_empty_tables_and_columns_without_a_type(warehouse: Warehouse) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    warehouse.write({})
    warehouse.write({"steps": table(), "shards": batch("a")["shards"].slice(0, 0)})
    assert count(warehouse, "steps") == 0
    rows = table(step("a", started))
    assert rows.schema.field("finished_at").type == pa.null()
    warehouse.write({"steps": rows})
    assert count(warehouse, "steps") == 1


def test_a_column_left_out_keeps_its_value(warehouse: Warehouse) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    warehouse.write({"steps": table({**step("a", started), "error": "out of memory"})})
    warehouse.write({"steps": table({"fingerprint": "a", "status": "failed"})})
    answer = warehouse.query("SELECT status, error FROM steps").to_pylist()
    assert answer == [{"status": "failed", "error": "out of memory"}]


def test_times_do_not_depend_on_the_machine(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        noon = datetime(2026, 1, 1, 12)
        warehouse.write({"steps": table(step("naive", noon), step("aware", noon))})
        warehouse.write({"steps": table(step("aware", noon.replace(tzinfo=UTC)))})
        warehouse.publish()
        for query in (warehouse.query, warehouse.snapshot_query):
            answer = query("SELECT started_at, started_at::VARCHAR AS words FROM steps")
            assert answer.schema.field("started_at").type == pa.timestamp("us", tz="UTC")
            assert answer["started_at"].to_pylist() == [noon.replace(tzinfo=UTC)] * 2
            assert answer["words"].to_pylist() == ["2026-01-01 12:00:00+00"] * 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_query_takes_parameters_by_name_and_place(warehouse: Warehouse) -> None:
    warehouse.write(batch("a"))
    named = warehouse.query("SELECT count(*) AS n FROM shards WHERE shard_index < $below", {"below": 5})
    placed = warehouse.query("SELECT count(*) AS n FROM shards WHERE shard_index < ?", [5])
    assert named.to_pylist() == placed.to_pylist() == [{"n": 5}]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM shards", r"read-only mode!\nQueries only read"),
        ("CREATE TABLE mine (x INTEGER)", "Queries only read"),
        ("SELECT * FROM shrads", "shrads does not exist"),
        ("SELEKT 1", "syntax error"),
        ("SELECT $run_id", "run_id"),
        (" -- nothing", "the query is empty"),
    ],
)
def test_a_query_that_fails_says_why_and_leaves_the_file_free(filled: Warehouse, sql: str, words: str) -> None:
    for query in (filled.query, filled.snapshot_query):
        with pytest.raises(WarehouseError, match=words):
            query(sql)
    filled.write(batch("a"))
    assert count(filled, "shards") == 20


def test_query_makes_an_empty_warehouse(warehouse: Warehouse) -> None:
    assert count(warehouse, "prompt_difficulty") == 0


def test_a_file_left_without_tables_gets_them(warehouse: Warehouse) -> None:
    warehouse.root.mkdir()
    duckdb.connect(str(warehouse.path)).close()
    assert count(warehouse, "steps") == 0


def test_views_are_brought_up_to_date(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.write(batch("a"))
    monkeypatch.setattr(versions, "DEFINITION", versions.DEFINITION + "CREATE OR REPLACE VIEW later AS SELECT 1;")
    monkeypatch.setattr(versions, "DEFINITION_SHA256", "another")
    assert count(warehouse, "later") == 1
    assert count(warehouse, "shards") == 20


def test_a_named_query_finds_its_views_in_a_snapshot_of_older_code(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.write(batch("a"))
    older = warehouse.publish()
    monkeypatch.setattr(versions, "DEFINITION", versions.DEFINITION + "CREATE OR REPLACE VIEW later AS SELECT 1 AS x;")
    monkeypatch.setattr(versions, "DEFINITION_SHA256", "another")
    monkeypatch.setattr(module, "NAMED_QUERIES", {"later": "FROM later"})
    assert warehouse.named_query("later").to_pylist() == [{"x": 1}]
    newer = warehouse.snapshot_path.resolve()
    assert newer != older.resolve()
    warehouse.named_query("later")
    assert warehouse.snapshot_path.resolve() == newer


def test_a_newer_schema_is_refused(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = versions.SCHEMA_VERSION + 1
    monkeypatch.setattr(versions, "SCHEMA_VERSION", newer)
    warehouse.write(batch("a"))
    monkeypatch.undo()
    calls: list[Any] = [
        lambda: warehouse.write(batch("b")),
        lambda: count(warehouse, "steps"),
        warehouse.publish,
    ]
    for call in calls:
        with pytest.raises(
            WarehouseError, match=f"schema version {newer}, this rlsift knows {newer - 1}: upgrade rlsift"
        ):
            call()


def test_a_snapshot_changes_only_when_published(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match=f"no snapshot has been published under {warehouse.root}"):
        warehouse.snapshot_query("SELECT 1")
    assert not warehouse.root.exists()
    warehouse.publish()
    warehouse.write(batch("a"))
    assert warehouse.snapshot_query("FROM shards").num_rows == 0
    snapshot = warehouse.publish()
    assert warehouse.snapshot_query("FROM shards").num_rows == 20
    assert warehouse.snapshot_path.resolve() == snapshot.resolve()
    assert snapshot.stat().st_mode & 0o777 == 0o444


def test_only_the_previous_snapshot_stays_and_the_root_may_move(warehouse: Warehouse) -> None:
    warehouse.publish()
    leftover = warehouse.root / "snapshots" / "warehouse-1.duckdb"
    leftover.write_bytes(b"half a copy")
    published = [warehouse.publish() for _ in range(3)]
    assert sorted((warehouse.root / "snapshots").iterdir()) == sorted(published[-2:])
    moved = Warehouse(warehouse.root.rename(warehouse.root.with_name("moved")))
    assert moved.snapshot_query("SELECT 1 AS x").to_pylist() == [{"x": 1}]
    assert not moved.path.with_name("warehouse.duckdb.wal").exists()


def test_a_snapshot_that_goes_while_it_is_looked_up(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.publish()
    connect = module._connect
    looked_up: list[Path] = []

    def slow_connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        if path.parent.name == "snapshots":
            looked_up.append(path)
            if len(looked_up) == 1:
                warehouse.write(batch("a"))
                warehouse.publish()
                warehouse.publish()
                assert not path.exists()
        return connect(path, read_only=read_only)

    monkeypatch.setattr(module, "_connect", slow_connect)
    assert warehouse.snapshot_query("FROM shards").num_rows == 20
    assert len(looked_up) == 2


def test_a_held_lock_stops_writers_with_the_holders_name_but_no_reader(warehouse: Warehouse) -> None:
    warehouse.write(batch("a"))
    warehouse.publish()
    warehouse.lock_timeout_seconds = 0.1
    with exclusive_lock(warehouse.lock_path, timeout_seconds=1):
        holder = warehouse.lock_path.read_text()
        with pytest.raises(WarehouseError, match=rf"warehouse.duckdb.lock is still held by process {holder} "):
            warehouse.write(batch("b"))
        assert warehouse.snapshot_query("FROM shards").num_rows == 20
    warehouse.write(batch("b"))


def test_threads_take_turns(warehouse: Warehouse) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for i in range(2):
                warehouse.write(batch(f"{name}-{i}"))
                warehouse.query("FROM shards")
                warehouse.publish()
                warehouse.snapshot_query("FROM shards")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert count(warehouse, "shards") == 3 * 2 * 20


def test_100_000_rows_are_written_and_written_again(warehouse: Warehouse) -> None:
    rows = batch("a", 100_000)["shards"]
    warehouse.write({"shards": rows})
    warehouse.write({"shards": rows})
    assert count(warehouse, "shards") == 100_000
