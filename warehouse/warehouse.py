"""The one door to DuckDB: locked writes to the live file, read-only snapshots for everybody else.

DuckDB lets one process write a file at a time and fails at once when two meet. So each touch of the live file
is lock -> connect -> one transaction -> close -> release, and users' SQL reads a published copy.
"""

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from warehouse.asking import DEFAULT_LIMITS, Answer, Limits, Parameters, answered, guarded
from warehouse.comments import column_comments
from warehouse.errors import WarehouseError
from warehouse.files import clone_file, exclusive_lock, fsync_directory, interrupts_held
from warehouse.totals import forget_written, gather_finished, gather_older

SCHEMA_VERSION = 1
HERE = Path(__file__).parent
TABLES_AND_VIEWS = (HERE / "schema.sql").read_text() + (HERE / "views.sql").read_text()
DEFINITION = TABLES_AND_VIEWS + column_comments(TABLES_AND_VIEWS)
DEFINITION_SHA256 = hashlib.sha256(DEFINITION.encode()).hexdigest()
GATHERED = {"rollout_stats": "kept_totals", "sampler_decisions": "kept_decisions"}
"""Tables and what follows from them, which nobody else writes."""
OWN_TABLES = ("meta", "ungathered", *GATHERED.values())
"""Of the warehouse itself: they say nothing that the others do not."""
WRITABLE = f"SELECT table_name FROM duckdb_tables() WHERE table_name NOT IN {OWN_TABLES} ORDER BY 1"
KEEP_RUN_STEPS = """
    DELETE FROM run_steps
    WHERE run_id = $run_id AND NOT list_contains(
        list_zip($stages::INTEGER[], $names::VARCHAR[]), struct_pack(stage := stage, name := name)
    )
"""
NAMED_QUERIES = {path.stem: path.read_text() for path in sorted((HERE / "queries").rglob("*.sql"))}

Connection = duckdb.DuckDBPyConnection
T = TypeVar("T")


class Warehouse:
    """The warehouse under `root`. Keeps no connection open, so threads and pickles may share it."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.path = self.root / "warehouse.duckdb"
        self.lock_path = self.root / "warehouse.duckdb.lock"
        self.snapshot_path = self.root / "warehouse.snapshot.duckdb"
        self.lock_timeout_seconds = 120.0

    def write(self, tables: Mapping[str, pa.Table], *, fingerprint: str | None = None, instead: bool = False) -> None:
        """Write every row of every table in one transaction: all of them or, after any error, none.

        `fingerprint` is that of the step which writes: rows that do not name one get it, where their table asks.
        A row whose primary key is there already is replaced; a column left out keeps the value that it has
        there, and is NULL in a new row. `instead` puts them in the place of all rows that these tables have of the
        fingerprint. Raises WarehouseError for an unknown table or column, two rows of one key, a value that its
        column cannot hold, a warehouse of a newer schema, or a lock held too long.
        """
        with self._lock(), self._open() as connection:
            connection.begin()
            for name, table in tables.items():
                if instead:
                    for old in filter(None, (name, GATHERED.get(name))):
                        connection.execute(f"DELETE FROM {old} WHERE fingerprint = $1", [fingerprint])
                _insert(connection, name, table, fingerprint)
            if "steps" in tables:
                gather_finished(connection)
            connection.commit()

    def keep_run_steps(self, run_id: str, steps: Collection[tuple[int, str]]) -> None:
        """Of the steps that the run is said to take, keep those at the given (stage, name): it takes no others now.

        Only what the run uses is forgotten; the steps themselves, and every row that they wrote, stay.
        """
        stages, names = [stage for stage, _ in steps], [name for _, name in steps]
        with self._lock(), self._open() as connection:
            connection.begin()
            connection.execute(KEEP_RUN_STEPS, {"run_id": run_id, "stages": stages, "names": names})
            connection.commit()

    def query(self, sql: str, parameters: Parameters | None = None) -> pa.Table:
        """Run one short read on the live file, under the lock: for the pipeline; users have snapshot_query.

        Makes an empty warehouse where there is none. Times are in UTC. Raises WarehouseError.
        """
        with self._lock(), self._open(read_only=True) as connection:
            return _fetch(connection, sql, parameters)

    def publish(self) -> Path:
        """Publish all committed rows as a new snapshot and return its path.

        `warehouse.snapshot.duckdb` points to it from then on. The snapshot before it stays for those who have
        just looked it up; older ones go.
        """
        snapshots = self.root / "snapshots"
        with self._lock():
            with self._open() as connection:
                connection.execute("CHECKPOINT")
            snapshots.mkdir(exist_ok=True)
            previous = self._newest_snapshot()
            for path in snapshots.glob("warehouse-*"):
                if path != previous:
                    path.unlink()
            snapshot = snapshots / f"warehouse-{time.time_ns()}.duckdb"
            clone_file(self.path, snapshot, mode=0o444)
            fsync_directory(snapshots)
            pointer = self.root / "warehouse.snapshot.duckdb.tmp"
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(snapshot.relative_to(self.root))
            os.replace(pointer, self.snapshot_path)
            fsync_directory(self.root)
        return snapshot

    def snapshot_query(self, sql: str, parameters: Parameters | None = None) -> pa.Table:
        """Run SQL of this code's own on the newest snapshot, read-only; waits for no lock and blocks no writer.

        Times are in UTC. Raises WarehouseError when nothing was published yet, or the SQL fails or writes.
        """
        with closing(self._connect_to_snapshot()) as connection:
            return _fetch(connection, sql, parameters)

    def named_query(self, name: str, /, **parameters: Any) -> pa.Table:
        """Run queries/<name>.sql with its `$parameters` on the newest snapshot. Raises WarehouseError.

        A snapshot made by other code may lack what the query asks for, so it is published anew.
        """
        if name not in NAMED_QUERIES:
            raise WarehouseError(f"no query is named {name!r}; there are {', '.join(NAMED_QUERIES)}")
        with self._current_snapshot() as connection:
            return _fetch(connection, NAMED_QUERIES[name], parameters)

    def bring_up_to_date(self) -> None:
        """Publish anew where the snapshot was made by other code, and may lack tables, views or their comments."""
        with self._current_snapshot():
            pass

    def ask(self, sql: str, parameters: Parameters | None = None, *, limits: Limits = DEFAULT_LIMITS) -> pa.Table:
        """Run one statement of a user's on the newest snapshot: all rows as an Arrow table. See `asking`."""
        with self.asking(sql, parameters, limits=limits) as answer:
            return answer.table()

    @contextmanager
    def asking(
        self, sql: str, parameters: Parameters | None = None, *, limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[Answer]:
        """Run one statement of a user's on the newest snapshot, and hand its rows out batch by batch.

        It waits for no lock and blocks no writer, reads files of the root only (`getvariable('root')` is its path), and
        Ctrl-C ends it. Times are in UTC. Raises LimitReached at a limit; WarehouseError when nothing was published
        yet, or the statement fails, writes or is none.
        """
        with ExitStack() as stack:
            connection = self._at_snapshot(
                lambda path: stack.enter_context(guarded(path, self.root.absolute(), limits))
            )
            yield stack.enter_context(answered(connection, sql, parameters, limits))

    def _lock(self) -> AbstractContextManager[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        return exclusive_lock(self.lock_path, timeout_seconds=self.lock_timeout_seconds)

    @contextmanager
    def _open(self, *, read_only: bool = False) -> Iterator[Connection]:
        """The live file with the tables and views of this code. The caller holds the lock."""
        if read_only and self.path.exists():
            with closing(self._connect_to_live(read_only=True)) as connection, _in_words(), interrupts_held():
                if _is_current(connection):
                    yield connection
                    return
        with closing(self._connect_to_live(read_only=False)) as connection, _in_words(), interrupts_held():
            if not _is_current(connection):
                _define(connection)
            yield connection

    def _connect_to_live(self, *, read_only: bool) -> Connection:
        deadline = time.monotonic() + self.lock_timeout_seconds
        while True:
            try:
                return _connect(self.path, read_only=read_only)
            except duckdb.Error as error:
                # Somebody who takes no lock has the file open: a notebook, DuckDB's own shell.
                if "Conflicting lock" not in str(error) or time.monotonic() > deadline:
                    remedy = f"Open {self.snapshot_path} read-only instead of the live file."
                    raise WarehouseError(f"cannot open {self.path}: {error}\n{remedy}") from error
                time.sleep(0.05)

    def _newest_snapshot(self) -> Path | None:
        return self.root / self.snapshot_path.readlink() if self.snapshot_path.is_symlink() else None

    @contextmanager
    def _current_snapshot(self) -> Iterator[Connection]:
        """The newest snapshot, with the tables and views of this code."""
        with closing(self._connect_to_snapshot()) as connection:
            is_current = _is_current(connection)
            if is_current:
                yield connection
        if not is_current:
            self.publish()
            with closing(self._connect_to_snapshot()) as connection:
                yield connection

    def _connect_to_snapshot(self) -> Connection:
        return self._at_snapshot(lambda path: _connect(path, read_only=True))

    def _at_snapshot(self, connect: Callable[[Path], T]) -> T:
        while (snapshot := self._newest_snapshot()) is not None:
            try:
                return connect(snapshot)
            except duckdb.Error as error:
                # Two publications since the look-up have removed it; else the trouble is real.
                if snapshot == self._newest_snapshot():
                    raise WarehouseError(f"cannot open the snapshot {snapshot}: {error}") from error
        raise WarehouseError(f"no snapshot has been published under {self.root} yet")


def _connect(path: Path, *, read_only: bool) -> Connection:
    with ExitStack() as closed_on_error:
        with interrupts_held():
            connection = closed_on_error.enter_context(duckdb.connect(str(path), read_only=read_only))
            connection.execute("SET TimeZone = 'UTC'")
        # An interrupt that was held comes here: an open connection would be in the way of the next one.
        closed_on_error.pop_all()
    return connection


def _is_current(connection: Connection) -> bool:
    """Whether tables and views are this code's. Raises WarehouseError where newer code has made them."""
    if connection.execute("FROM duckdb_tables() WHERE table_name = 'meta'").fetchone() is None:
        return False
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    version = int(meta.get("schema_version", 0))
    if version > SCHEMA_VERSION:
        raise WarehouseError(
            f"the warehouse has schema version {version}, this rlsift knows {SCHEMA_VERSION}: upgrade rlsift"
        )
    return version == SCHEMA_VERSION and meta.get("definition_sha256") == DEFINITION_SHA256


def _define(connection: Connection) -> None:
    meta = {"schema_version": str(SCHEMA_VERSION), "definition_sha256": DEFINITION_SHA256}
    connection.begin()
    connection.execute(DEFINITION)
    gather_older(connection)
    for item in meta.items():
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", item)
    connection.commit()


def _insert(connection: Connection, name: str, table: pa.Table, fingerprint: str | None) -> None:
    names = connection.execute(WRITABLE)
    known_tables = [row[0] for row in names.fetchall()]
    if name not in known_tables:
        raise WarehouseError(f"unknown table {name!r}; the tables are {', '.join(known_tables)}")
    columns = dict(connection.execute(f"SELECT name, pk FROM pragma_table_info('{name}')").fetchall())
    if unknown := [column for column in table.column_names if column not in columns]:
        raise WarehouseError(f"unknown columns {unknown} for {name!r}; its columns are {', '.join(columns)}")
    key = ", ".join(column for column, in_key in columns.items() if in_key)
    if fingerprint is not None and "fingerprint" in columns and "fingerprint" not in table.column_names:
        table = table.append_column("fingerprint", pa.repeat(fingerprint, table.num_rows))
    if table.num_rows == 0:
        return
    connection.register("incoming", table)
    with _in_words(f"cannot write to {name!r}: "):
        # DuckDB would keep the first of them and say nothing.
        twice = connection.execute(f"SELECT {key} FROM incoming GROUP BY ALL HAVING count(*) > 1").fetchone()
        if twice is not None:
            raise WarehouseError(f"cannot write to {name!r}: more than one row with ({key}) = {twice}")
        connection.execute(f"INSERT OR REPLACE INTO {name} BY NAME FROM incoming")
        if name in GATHERED:
            forget_written(connection)
    connection.unregister("incoming")


def _fetch(connection: Connection, sql: str, parameters: Parameters | None) -> pa.Table:
    with _in_words():
        if not connection.extract_statements(sql):
            raise WarehouseError("the query is empty")
        return connection.execute(sql, parameters).to_arrow_table()


@contextmanager
def _in_words(what: str = "") -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        remedy = "\nQueries only read; rows are written by the pipeline." if "read-only mode" in str(error) else ""
        raise WarehouseError(f"{what}{error}{remedy}") from error
