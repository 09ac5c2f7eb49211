"""Several processes at one warehouse, and processes that die."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouse_rows import batch

from warehouse import Warehouse, WarehouseError

HERE = Path(__file__).parent
PRELUDE = f"""
import os, signal, sys, time
sys.path[:0] = [{str(HERE.parents[1])!r}, {str(HERE)!r}]
import duckdb
from warehouse import Warehouse
from warehouse.files import exclusive_lock
from warehouse_rows import batch
warehouse = Warehouse(sys.argv[1])
"""
WRITER = """
for i in range(int(sys.argv[3])):
    warehouse.write(batch(f"{sys.argv[2]}-{i}"))
    print(f"{sys.argv[2]}-{i}", flush=True)
"""
READER = """
pairs = "SELECT (SELECT count(*) FROM shards) AS a, (SELECT count(*) FROM run_steps) AS b"
before = 0
for i in range(int(sys.argv[3])):
    if sys.argv[2] == "publisher":
        warehouse.publish()
    for query in (warehouse.query, warehouse.snapshot_query):
        row = query(pairs).to_pylist()[0]
        assert row["a"] == row["b"] and row["a"] % 20 == 0, row
    assert row["a"] >= before, (row, before)
    before = row["a"]
print(before)
"""
# A writer that dies as a machine does: with rows committed to the log alone, and more in an open transaction.
DIES = """
with exclusive_lock(warehouse.lock_path, timeout_seconds=10):
    connection = duckdb.connect(str(warehouse.path))
    for name, end in (("committed", "COMMIT"), ("open", "SELECT 1")):
        connection.execute("BEGIN")
        for key, rows in batch(name, 5000).items():
            connection.execute(f"INSERT INTO {key} BY NAME FROM rows")
        connection.execute(end)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path)
    warehouse.write(batch("first"))
    warehouse.publish()
    yield warehouse


def start(script: str, warehouse: Warehouse, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + script, str(warehouse.root), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def batches(warehouse: Warehouse) -> dict[str, int]:
    """Rows by batch; each batch must be in both tables alike."""
    sql = "SELECT fingerprint, count(*) AS n FROM {} GROUP BY ALL ORDER BY ALL"
    shards, steps = (warehouse.query(sql.format(name)).to_pylist() for name in ("shards", "run_steps"))
    assert shards == steps
    return {row["fingerprint"]: row["n"] for row in shards}


def test_writers_and_readers_lose_no_row(warehouse: Warehouse) -> None:
    writers = [start(WRITER, warehouse, name, "5") for name in ("w0", "w1", "w2")]
    readers = [start(READER, warehouse, name, "5") for name in ("publisher", "reader")]
    ended = [(*process.communicate(), process.returncode) for process in writers + readers]
    assert [(error, code) for _, error, code in ended] == [("", 0)] * 5
    acknowledged = {name for out, _, _ in ended[:3] for name in out.split()}
    assert len(acknowledged) == 3 * 5
    assert batches(warehouse) == dict.fromkeys(acknowledged | {"first"}, 20)


@pytest.mark.parametrize("after", [0.1, 0.3])
def test_a_writer_killed_at_any_moment_leaves_whole_batches(warehouse: Warehouse, after: float) -> None:
    process = start(WRITER, warehouse, "w", "1000")
    assert process.stdout is not None
    first = process.stdout.readline().strip()
    time.sleep(after)
    process.kill()
    acknowledged = {"first", first, *process.communicate()[0].split()}
    found = batches(warehouse)
    assert set(found.values()) == {20}
    assert set(found) >= acknowledged
    assert len(found) <= len(acknowledged) + 1
    warehouse.write(batch("later"))


@pytest.mark.parametrize("first_touch", ["query", "publish", "write"])
def test_what_a_killed_writer_had_committed_is_there(warehouse: Warehouse, first_touch: str) -> None:
    process = start(DIES, warehouse)
    process.communicate()
    assert process.returncode == -9
    assert warehouse.path.with_name("warehouse.duckdb.wal").stat().st_size > 0
    if first_touch == "publish":
        warehouse.publish()
        assert warehouse.snapshot_query("FROM shards").num_rows == 5020
    if first_touch == "write":
        warehouse.write(batch("first"))
    assert batches(warehouse) == {"first": 20, "committed": 5000}


def test_somebody_who_takes_no_lock_is_waited_for_then_named(warehouse: Warehouse) -> None:
    holds = "connection = duckdb.connect(str(warehouse.path)); print('open', flush=True); time.sleep({})"
    process = start(holds.format(1), warehouse)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    warehouse.lock_timeout_seconds = 0.1
    with pytest.raises(WarehouseError, match=rf"PID {process.pid}.*\n.*Open .*warehouse.snapshot.duckdb"):
        warehouse.write(batch("a"))
    warehouse.lock_timeout_seconds = 30
    warehouse.write(batch("a"))
    process.communicate()
    assert batches(warehouse) == {"first": 20, "a": 20}
