"""The one door to DuckDB: locked writes to the live file, read-only snapshots for everybody else.

DuckDB lets one process write a file at a time and fails at once when two meet. So each touch of the live file
is lock -> connect -> one transaction -> close -> release, and users' SQL reads a published copy.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from warehouse.asking import DEFAULT_LIMITS, OF_EVERY_CONNECTION, Answer, Limits, Parameters, answered, guarded
from warehouse.errors import WarehouseError
from warehouse.files import clone_file, exclusive_lock, fsync_directory, interrupts_held
from warehouse.tables import write_rows
from warehouse.totals import gather_finished
from warehouse.versions import SCHEMA_VERSION, define, is_current, older_version

HERE = Path(__file__).parent
KEEP_RUN_STEPS = """
    DELETE FROM run_steps
    WHERE run_id = $run_id AND NOT list_contains(
        list_zip($stages::INTEGER[], $names::VARCHAR[]), struct_pack(stage := stage, name := name)
    )
"""
SETTINGS = f"{OF_EVERY_CONNECTION} PRAGMA disable_checkpoint_on_shutdown;"
"""A checkpoint packs the last block of each changed table anew, half the time of a small write; DuckDB makes one when
its log comes to 16 MB, `publish` each time."""
NAMED_QUERIES = {path.stem: path.read_text() for path in sorted((HERE / "queries").rglob("*.sql"))}

logger = logging.getLogger("rlsift.warehouse")
Connection = duckdb.DuckDBPyConnection


class Query(Protocol):
    def __call__(self, sql: str, parameters: Parameters | None = None) -> pa.Table: ...


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
        A row whose key is there already is replaced; a column left out keeps the value that it has
        there, and is NULL in a new row. `instead` puts them in the place of all rows that these tables have of the
        fingerprint. Raises WarehouseError for an unknown table or column, two rows of one key, a value that its
        column cannot hold, a warehouse of a newer schema, or a lock held too long.
        """
        with self._lock(), self._open() as connection:
            connection.begin()
            for name, rows in tables.items():
                with _in_words(f"cannot write to {name!r}: "):
                    write_rows(connection, name, rows, fingerprint=fingerprint, instead=instead)
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
        """Run SQL of this code's own on the newest snapshot, read-only; see `one_snapshot`."""
        with self.one_snapshot() as query:
            return query(sql, parameters)

    @contextmanager
    def one_snapshot(self) -> Iterator[Query]:
        """A function like `snapshot_query`, all of whose answers are of one snapshot, whatever is published meanwhile.

        It waits for no lock and blocks no writer, but where the snapshot is missing or was made by other code, and may
        lack tables and views: then it is published anew first. Times are in UTC. Raises WarehouseError when nothing
        was published yet, the snapshot is of newer code or damaged, or the SQL fails or writes.
        """
        with self._snapshot(lambda path: closing(_connect(path, read_only=True))) as connection:
            yield partial(_fetch, connection)

    def named_query(self, name: str, /, **parameters: Any) -> pa.Table:
        """Run queries/<name>.sql with its `$parameters` as `snapshot_query` does."""
        if name not in NAMED_QUERIES:
            raise WarehouseError(f"no query is named {name!r}; there are {', '.join(NAMED_QUERIES)}")
        return self.snapshot_query(NAMED_QUERIES[name], parameters)

    def bring_up_to_date(self) -> None:
        """Publish anew where the snapshot is missing or was made by other code, and may lack tables and views."""
        with self.one_snapshot():
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

        It finds its snapshot as `one_snapshot` does, reads files of the root only (`getvariable('root')` is its path),
        and Ctrl-C ends it. Raises LimitReached at a limit; WarehouseError as `one_snapshot`, or where the statement is
        none.
        """
        with (
            self._snapshot(lambda path: guarded(path, self.root.absolute(), limits)) as connection,
            answered(connection, sql, parameters, limits) as answer,
        ):
            yield answer

    def _lock(self) -> AbstractContextManager[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        return exclusive_lock(self.lock_path, timeout_seconds=self.lock_timeout_seconds)

    @contextmanager
    def _open(self, *, read_only: bool = False) -> Iterator[Connection]:
        """The live file with the tables and views of this code. The caller holds the lock."""
        if read_only and self.path.exists():
            with self._connected(read_only=True) as connection:
                if is_current(connection):
                    yield connection
                    return
        with self._connected(read_only=False) as connection:
            older = older_version(connection)
            if older is None:
                if not is_current(connection):
                    define(connection)
                yield connection
                return
            connection.execute("CHECKPOINT")
        self._keep_copy(older)
        with self._connected(read_only=False) as connection:
            define(connection)
            yield connection

    @contextmanager
    def _connected(self, *, read_only: bool) -> Iterator[Connection]:
        with closing(self._connect_to_live(read_only=read_only)) as connection, _in_words(), interrupts_held():
            yield connection

    def _keep_copy(self, version: int) -> None:
        """The live file as it is, beside it, before its tables change; one that was cut short is made again."""
        copy = self.path.with_name(f"warehouse.version-{version}.duckdb")
        temporary = copy.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        clone_file(self.path, temporary, mode=0o644)
        os.replace(temporary, copy)
        fsync_directory(self.root)
        logger.warning("%s is brought from version %d to %d; as it was: %s", self.path, version, SCHEMA_VERSION, copy)

    def _connect_to_live(self, *, read_only: bool) -> Connection:
        deadline = time.monotonic() + self.lock_timeout_seconds
        while True:
            try:
                return _connect(self.path, read_only=read_only)
            except duckdb.Error as error:
                # Somebody who takes no lock has the file open: a notebook, DuckDB's own shell.
                if "Conflicting lock" not in str(error) or time.monotonic() > deadline:
                    remedy = f"If it is damaged, a copy of {self.snapshot_path} may take its place."
                    if "Conflicting lock" in str(error):
                        remedy = f"Open {self.snapshot_path} read-only instead of the live file."
                    raise WarehouseError(f"cannot open {self.path}: {error}\n{remedy}") from error
                time.sleep(0.05)

    def _newest_snapshot(self) -> Path | None:
        if self.snapshot_path.is_symlink():
            return self.root / self.snapshot_path.readlink()
        return self.snapshot_path if self.snapshot_path.exists() else None  # a file, where the root was copied

    @contextmanager
    def _snapshot(self, opened: Callable[[Path], AbstractContextManager[Connection]]) -> Iterator[Connection]:
        """The newest snapshot, with the tables and views of this code."""
        with ExitStack() as stack:
            while (connection := self._open_current(opened, stack)) is None:
                stack.close()
                self._publish_anew()
            yield connection

    def _publish_anew(self) -> None:
        if self.path.exists():
            self.publish()
        elif not self.snapshot_path.exists():
            raise WarehouseError(f"no snapshot has been published under {self.root} yet; is it the `root` of a run?")
        else:
            raise WarehouseError(
                f"{self.snapshot_path} was made by another version of rlsift, and {self.path}, from which it is made "
                "anew, is missing: copy the whole root"
            )

    def _open_current(
        self, opened: Callable[[Path], AbstractContextManager[Connection]], stack: ExitStack
    ) -> Connection | None:
        """None where there is no snapshot, or one of other code."""
        while (snapshot := self._newest_snapshot()) is not None:
            try:
                connection = stack.enter_context(opened(snapshot))
                return connection if is_current(connection) else None
            except duckdb.Error as error:
                if snapshot != self._newest_snapshot():  # two publications since the look-up have removed it
                    continue
                if not snapshot.exists():
                    break
                remedy = "Remove it if it is damaged: it is published anew."
                raise WarehouseError(f"cannot open the snapshot {snapshot}: {error}\n{remedy}") from error
        return None


def _connect(path: Path, *, read_only: bool) -> Connection:
    with ExitStack() as closed_on_error:
        with interrupts_held():
            connection = closed_on_error.enter_context(duckdb.connect(str(path), read_only=read_only))
            connection.execute(SETTINGS)
        # An interrupt that was held comes here: an open connection would be in the way of the next one.
        closed_on_error.pop_all()
    return connection


def _fetch(connection: Connection, sql: str, parameters: Parameters | None = None) -> pa.Table:
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
