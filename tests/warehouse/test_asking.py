"""What a user types: it only reads, stays within the root, and ends at its limits."""

import re
import threading
import time

import duckdb
import pyarrow as pa
import pytest
from warehouse_rows import batch

from warehouse import LimitReached, Limits, Warehouse, WarehouseError
from warehouse.asking import LOST, is_finished, split_statements
from warehouse.files import exclusive_lock
from warehouse.lake import write_shard

ENDLESS = "SELECT sum(a.range * b.range) AS s FROM range(100_000_000) AS a, range(100_000_000) AS b"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("it's a root"))
    warehouse.write(batch("a"))
    write_shard(warehouse.root / "lake" / "shard-0.parquet", pa.table({"x": [1, 2]}), {})
    (warehouse.root.parent / "outside.csv").write_text("x\n1\n")
    warehouse.publish()
    return warehouse


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM shards",
        "FROM shards LIMIT 1;",
        "-- a comment\nWITH s AS (FROM shards) SELECT 1 /* ; */ ;",
        "VALUES (1)",
        "DESCRIBE shards",
        "SHOW TABLES",
        "SUMMARIZE shards",
        "PRAGMA table_info('shards')",
        "PIVOT shards ON path USING count(*)",
        "PIVOT shards ON path IN ('p') USING count(*)",
        "EXPLAIN SELECT 1",
        "explain /* how? */ analyze select ';'",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT ';'",
    ],
)
def test_what_reads_is_answered(warehouse: Warehouse, sql: str) -> None:
    assert warehouse.ask(sql).num_rows > 0


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO shards DEFAULT VALUES",
        "UPDATE shards SET path = ''",
        "DELETE FROM shards",
        "TRUNCATE shards",
        "MERGE INTO shards USING shards AS s ON true WHEN MATCHED THEN DELETE",
        "DROP TABLE shards",
        "ALTER TABLE shards ADD COLUMN x INTEGER",
        "COMMENT ON TABLE shards IS ''",
        "CREATE TABLE t (x INTEGER)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE TYPE mood AS ENUM ('a')",
        "COPY shards TO '{root}/out.csv'",
        "COPY (SELECT 1) TO '{root}/out.parquet'",
        "EXPLAIN ANALYZE COPY shards TO '{root}/out.csv'",
        "explain (analyze, format json) copy shards to '{root}/out.csv'",
        "COPY shards FROM '{root}/out.csv'",
        "EXPORT DATABASE '{root}/export'",
        "ATTACH '{root}/other.duckdb'",
        "DETACH warehouse",
        "USE memory",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
        "SET VARIABLE root = '/'",
        "RESET memory_limit",
        "PRAGMA memory_limit = '1TB'",
        "PRAGMA enable_profiling",
        "CALL enable_profiling()",
        "CHECKPOINT",
        "VACUUM",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "SELECT 1; DELETE FROM shards",
    ],
)
def test_what_writes_or_sets_is_refused_and_leaves_nothing(warehouse: Warehouse, sql: str) -> None:
    before = sorted(warehouse.root.rglob("*"))
    quoted = str(warehouse.root).replace("'", "''")
    with pytest.raises(WarehouseError, match=r"^[A-Z]+ is refused\. Queries only read: "):
        warehouse.ask(sql.format(root=quoted))
    assert sorted(warehouse.root.rglob("*")) == before
    assert warehouse.ask("SELECT count(*) AS n FROM shards")["n"].to_pylist() == [20]


@pytest.mark.parametrize(
    "sql",
    [
        "/* SELECT\nall of */ DELETE FROM shards",
        "-- SELECT\n  delete FROM shards",
        "WITH x AS (SELECT 1) DELETE FROM shards",
        "EXPLAIN ANALYZE WITH x AS (SELECT 1) DELETE FROM shards",
        "SELECT 'ä'; DELETE FROM shards",
    ],
)
def test_what_is_refused_is_named_by_what_it_does(warehouse: Warehouse, sql: str) -> None:
    with pytest.raises(WarehouseError, match=r"^DELETE is refused\."):
        warehouse.ask(sql)


def test_files_of_the_root_can_be_read_and_no_others(warehouse: Warehouse) -> None:
    answer = warehouse.ask("FROM read_parquet(getvariable('root') || '/lake/*.parquet')")
    assert answer["x"].to_pylist() == [1, 2]
    link = warehouse.root / "link.csv"
    if not link.exists():
        link.symlink_to(warehouse.root.parent / "outside.csv")
    for name in (f"{warehouse.root.parent}/outside.csv", f"{warehouse.root}/../outside.csv", str(link), "/etc/passwd"):
        with pytest.raises(WarehouseError, match="Only files under the root can be read"):
            warehouse.ask("FROM read_csv($1)", [name])
    with pytest.raises(WarehouseError, match="Only files under the root"):
        warehouse.ask("FROM read_csv('https://example.org/a.csv')")
    with pytest.raises(WarehouseError, match="Only files under the root"):
        warehouse.ask("FROM glob('/etc/*')")


def test_errors_of_sql_are_duckdbs_own(warehouse: Warehouse) -> None:
    with pytest.raises(WarehouseError, match=r"Parser Error: syntax error at or near .selec.\n\nLINE 1: selec 1"):
        warehouse.ask("selec 1")
    with pytest.raises(WarehouseError, match="Catalog Error: Table with name nothing does not exist"):
        warehouse.ask("FROM nothing")
    with pytest.raises(
        WarehouseError, match=rf"Conversion Error: Could not convert string 'x' to INT32|{re.escape(LOST)}"
    ):
        # Long after the first rows were handed out.
        warehouse.ask("SELECT CASE WHEN i = 900000 THEN 'x' ELSE '1' END::INTEGER FROM range(1_000_000) AS t (i)")
    with pytest.raises(WarehouseError, match="the statement is empty"):
        warehouse.ask(" -- nothing")
    with pytest.raises(WarehouseError, match="one statement at a time: there are 2"):
        warehouse.ask("SELECT 1; SELECT 2")


def test_a_statement_ends_at_its_time_and_the_next_is_answered(warehouse: Warehouse) -> None:
    with pytest.raises(LimitReached, match=r"ended after its 0\.2 s") as raised:
        warehouse.ask(ENDLESS, limits=Limits(seconds=0.2))
    assert raised.value.limit == "seconds"
    assert warehouse.ask("SELECT 1 AS x")["x"].to_pylist() == [1]


def test_time_does_not_run_while_the_rows_are_read(warehouse: Warehouse) -> None:
    with warehouse.asking("FROM range(300_000)", limits=Limits(seconds=5)) as answer:
        first = next(answer.batches)
        time.sleep(5.1)
        assert first.num_rows + sum(batch.num_rows for batch in answer.batches) == 300_000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(length(s)) FROM (SELECT string_agg(i::VARCHAR, ',') AS s FROM range(30_000_000) AS t (i))",
        "SELECT string_agg(i::VARCHAR, ',') AS s FROM range(30_000_000) AS t (i)",
    ],
)
def test_a_statement_ends_at_its_memory(warehouse: Warehouse, sql: str) -> None:
    with pytest.raises(LimitReached, match="needs more than its 100MB of memory") as raised:
        warehouse.ask(sql, limits=Limits(memory="100MB"))
    assert raised.value.limit == "memory"


def test_memory_is_given_with_a_unit(warehouse: Warehouse) -> None:
    for memory in ("much", "-1", "0MB", "5", "80%", "99999999999999999TB"):
        with pytest.raises(WarehouseError, match=f"memory '{memory}': give a number with its unit, as 500MB or 4GB"):
            warehouse.ask("SELECT 1", limits=Limits(memory=memory))


def test_rows_that_do_not_fit_into_memory_are_handed_out_in_batches(warehouse: Warehouse) -> None:
    with warehouse.asking(
        "SELECT range AS x, 'a long text' AS t FROM range(20_000_000)", limits=Limits("100MB")
    ) as answer:
        assert answer.schema.names == ["x", "t"]
        assert sum(batch.num_rows for batch in answer.batches) == 20_000_000


def test_another_thread_may_end_its_reading_early(warehouse: Warehouse) -> None:
    with warehouse.asking("FROM range(1_000_000_000)") as answer:
        assert next(answer.batches).num_rows > 0


def test_it_waits_for_no_writer_and_no_writer_waits_for_it(warehouse: Warehouse) -> None:
    warehouse.lock_timeout_seconds = 1
    with exclusive_lock(warehouse.lock_path, timeout_seconds=1):
        assert warehouse.ask("FROM shards").num_rows == 20
    with warehouse.asking("FROM range(10_000_000)") as answer:
        next(answer.batches)
        warehouse.write(batch("a"))
        for _ in range(3):
            warehouse.publish()
        # The snapshot that it reads is gone from the directory by now.
        assert sum(batch.num_rows for batch in answer.batches) > 0


def test_statements_beside_each_other_keep_their_own_limits(warehouse: Warehouse) -> None:
    found: list[str] = []

    def end() -> None:
        with pytest.raises(LimitReached):
            warehouse.ask(ENDLESS, limits=Limits("1GB", 0.5))
        found.append("ended")

    thread = threading.Thread(target=end)
    thread.start()
    while thread.is_alive():
        limit = warehouse.ask("SELECT current_setting('memory_limit') AS m", limits=Limits("2GB"))["m"][0].as_py()
        assert limit == "1.8 GiB"
        assert warehouse.snapshot_query("SELECT 1").num_rows == 1
    assert found == ["ended"]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;\nSELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT 'ä;ö'; SELECT \"a;b\" -- one; two\n; /* three; */", ["SELECT 'ä;ö'", 'SELECT "a;b" -- one; two']),
        ("SELECT $$;$$;;", ["SELECT $$;$$"]),
        ("-- only this", []),
        ("/* a */ SELECT 1 /* b */; /* c **/ /**/", ["/* a */ SELECT 1 /* b */"]),
        ("/* a */ SELECT 1;/* b */SELECT 2/* c */", ["/* a */ SELECT 1", "/* b */SELECT 2/* c */"]),
        ("/* a */\n" * 60 + "SELECT 1", ["/* a */\n" * 60 + "SELECT 1"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        ("'open", ["'open"]),
    ],
)
def test_a_text_comes_apart_at_the_semicolons_of_its_statements(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements


@pytest.mark.parametrize(
    ("text", "finished"),
    [("SELECT 1", False), ("SELECT 1; ", True), ("SELECT ';'", False), ("SELECT 'ä';-- so", True), ("", False)],
)
def test_a_statement_is_finished_by_its_semicolon(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


def test_a_snapshot_opens_in_any_client(warehouse: Warehouse) -> None:
    with duckdb.connect(str(warehouse.snapshot_path), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM shards").fetchone() == (20,)
        assert connection.execute("SELECT count(*) FROM prompt_difficulty").fetchone() == (0,)


def test_numbers_reach_pandas_and_polars_without_a_copy(warehouse: Warehouse) -> None:
    answer = warehouse.ask("SELECT range AS x, range / 2 AS y FROM range(1000)")
    address = answer["x"].chunk(0).buffers()[1].address
    pandas = pytest.importorskip("pandas")
    frame = answer.to_pandas(types_mapper=pandas.ArrowDtype)
    assert frame["x"].array.__arrow_array__().chunk(0).buffers()[1].address == address
    polars = pytest.importorskip("polars")
    assert polars.from_arrow(answer)["x"].to_arrow().buffers()[1].address == address


def test_no_progress_bar_is_drawn_between_the_rows(warehouse: Warehouse) -> None:
    assert warehouse.ask("SELECT current_setting('enable_progress_bar') AS bar")["bar"].to_pylist() == [False]
