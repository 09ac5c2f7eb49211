"""A snapshot of another version, of nobody, damaged or gone: brought up, or named with what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from history_cases import of_version_1
from warehouse_rows import batch

from warehouse import Warehouse, WarehouseError, versions

ASKING: dict[str, Callable[[Warehouse], pa.Table]] = {
    "its own SQL": lambda warehouse: warehouse.snapshot_query("SELECT count(*) AS n FROM run_progress"),
    "a user's": lambda warehouse: warehouse.ask("SELECT count(*) AS n FROM run_progress"),
    "a named query": lambda warehouse: warehouse.named_query("report_stages", run_id="run_id 0"),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse(tmp_path / "root")
    warehouse.write(batch("a"))
    warehouse.publish()
    return warehouse


def n_shards(warehouse: Warehouse) -> list[int]:
    sql = "SELECT count(*) AS n FROM shards"
    return [ask(sql)["n"][0].as_py() for ask in (warehouse.snapshot_query, warehouse.ask)]


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())
def test_whoever_asks_a_snapshot_of_an_older_version_is_answered(
    tmp_path: Path, ask: Callable[[Warehouse], pa.Table]
) -> None:
    warehouse = of_version_1(tmp_path)
    assert ask(warehouse).num_rows == 1
    newer = warehouse.snapshot_path.resolve()
    assert newer.name != "warehouse-1.duckdb" and (tmp_path / "warehouse.version-1.duckdb").exists()
    ask(warehouse)
    assert warehouse.snapshot_path.resolve() == newer


def test_a_snapshot_of_newer_code_is_refused(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SCHEMA_VERSION", versions.SCHEMA_VERSION - 1)
    for ask in (warehouse.snapshot_query, warehouse.ask):
        with pytest.raises(WarehouseError, match="upgrade rlsift"):
            ask("SELECT 1")


@pytest.mark.parametrize("gone", ["snapshot", "pointer"])
def test_a_snapshot_that_is_gone_is_published_anew(warehouse: Warehouse, gone: str) -> None:
    (warehouse.snapshot_path.resolve() if gone == "snapshot" else warehouse.snapshot_path).unlink()
    assert n_shards(warehouse) == [20, 20]


def test_a_root_may_be_copied_without_its_links(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = Warehouse(tmp_path / "copy")
    shutil.copytree(warehouse.root, copy.root, symlinks=False)
    assert n_shards(copy) == [20, 20]
    copy.publish()
    assert copy.snapshot_path.is_symlink() and n_shards(copy) == [20, 20]


def test_an_older_snapshot_without_its_warehouse_stays_as_it_is(tmp_path: Path) -> None:
    warehouse = of_version_1(tmp_path)
    warehouse.path.unlink()
    before = warehouse.snapshot_path.read_bytes()
    with pytest.raises(WarehouseError, match=f"{warehouse.path}, from which it is made anew, is missing: copy"):
        warehouse.ask("SELECT 1")
    assert warehouse.snapshot_path.read_bytes() == before and not warehouse.path.exists()


@pytest.mark.parametrize("damaged", [slice(0, None), slice(5, None), slice(300_000, None), slice(12_288, 12_500)])
def test_a_damaged_snapshot_is_named_with_what_to_do(warehouse: Warehouse, damaged: slice) -> None:
    snapshot = warehouse.snapshot_path.resolve()
    snapshot.chmod(0o644)
    content = bytearray(snapshot.read_bytes())
    content[damaged] = b"" if damaged.stop is None else bytes(damaged.stop - damaged.start)
    snapshot.write_bytes(content)
    for ask in (warehouse.snapshot_query, warehouse.ask):
        with pytest.raises(WarehouseError, match=rf"cannot open the snapshot {snapshot}: .*\s.*Remove it"):
            ask("SELECT 1")
    snapshot.unlink()
    assert n_shards(warehouse) == [20, 20]


def test_a_snapshot_whose_blocks_are_damaged_is_named(warehouse: Warehouse) -> None:
    """It opens: its tables are read when they are asked."""
    snapshot = warehouse.snapshot_path.resolve()
    snapshot.chmod(0o644)
    content = snapshot.read_bytes()
    snapshot.write_bytes(content[:300_000] + bytes(reversed(content[300_000:])))
    for ask in (warehouse.snapshot_query, warehouse.ask):
        with pytest.raises(WarehouseError, match=r"(?s)Corrupt database file.*Remove it"):
            ask("SELECT 1")


@pytest.mark.parametrize("meta", ["AS SELECT 1 AS x", "(key VARCHAR, value VARCHAR)"])
def test_a_snapshot_of_another_program_is_refused(warehouse: Warehouse, meta: str) -> None:
    warehouse.snapshot_path.unlink()
    with duckdb.connect(str(warehouse.snapshot_path)) as connection:
        connection.execute(f"CREATE TABLE meta {meta}")
    for ask in (warehouse.snapshot_query, warehouse.ask):
        with pytest.raises(WarehouseError, match="is not rlsift's"):
            ask("SELECT 1")


def test_a_damaged_warehouse_is_named_with_what_to_do(warehouse: Warehouse) -> None:
    warehouse.path.write_bytes(b"hello")
    with pytest.raises(WarehouseError, match=f"a copy of {warehouse.snapshot_path} may take its place"):
        warehouse.write(batch("b"))


def test_all_answers_of_one_snapshot_agree_whatever_is_published(warehouse: Warehouse) -> None:
    sql = "SELECT count(*) AS n FROM shards"
    with warehouse.one_snapshot() as query:
        counts = [query(sql)["n"][0].as_py()]
        warehouse.write(batch("b"))
        for _ in range(3):
            warehouse.publish()
        counts.append(query(sql)["n"][0].as_py())
    assert counts == [20, 20] and n_shards(warehouse) == [40, 40]
