"""Statements that a user types: they only read, stay within the root, and end at a limit of memory and time."""

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, Literal, TypeVar

import duckdb
import pyarrow as pa

from warehouse.errors import WarehouseError

READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
PIVOT = [duckdb.StatementType.CREATE, duckdb.StatementType.SELECT]
"""What DuckDB makes of a PIVOT without IN: a temporary type, then the query."""
SPILL = "20GB"
OF_EVERY_CONNECTION = "SET TimeZone = 'UTC'; SET enable_progress_bar = false;"
"""The bar is drawn on stdout wherever __main__ is no file."""
"""On disk, of what does not fit into a statement's memory."""
BATCH_ROWS = 100_000
WORD = re.compile(r"\w+")
SIZE = re.compile(r"\s*[1-9]\d*(\.\d+)?\s*[MGT]i?B\s*", re.IGNORECASE)
"""Of less than a megabyte nothing is answered; DuckDB itself takes -1 for no limit."""
# Possessive: a comment that could end later as well would take in the statement after it, and exponential time.
COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*+\*/)*+")
LOST = "the statement failed, and DuckDB has lost what with (its threads raced); run it again to see"
"""Nobody interrupted it: that is told before. One failure in some hundred on a busy machine; duckdb/duckdb#25902."""

T = TypeVar("T")
Parameters = Mapping[str, Any] | Sequence[Any]


class LimitReached(WarehouseError):
    """A statement was ended by one of its limits; `limit` is the field of Limits."""

    def __init__(self, limit: Literal["memory", "seconds"], text: str) -> None:
        super().__init__(text)
        self.limit = limit


@dataclass(frozen=True)
class Limits:
    """What one statement may take: `memory` as DuckDB writes it (500MB, 4GB), `seconds` of work in DuckDB."""

    memory: str = "4GB"
    seconds: float = 60.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Answer:
    """Rows of a statement, a batch at a time; they may be taken once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)


def split_statements(sql: str) -> list[str]:
    """The statements of a text, apart at their semicolons; the last may lack its own. Comments alone are none."""
    text = sql.encode()
    ends = [start for start, _ in duckdb.tokenize(sql) if text[start : start + 1] == b";"]
    parts = [
        text[start:end].decode() for start, end in zip([0, *(end + 1 for end in ends)], [*ends, None], strict=True)
    ]
    return [part.strip() for part in parts if not COMMENTS.fullmatch(part)]


def is_finished(sql: str) -> bool:
    """Whether the text ends in the semicolon of its last statement."""
    tokens = duckdb.tokenize(sql)
    return bool(tokens) and sql.encode()[tokens[-1][0] :].strip().startswith(b";")


@contextmanager
def answered(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters | None, limits: Limits
) -> Iterator[Answer]:
    """Run one statement on a connection of `guarded`. Raises WarehouseError, LimitReached."""
    _check(connection, sql)
    with ThreadPoolExecutor(1) as thread:
        attended = _Attended(connection, thread, limits)
        reader = attended.call(lambda: connection.execute(sql, parameters).to_arrow_reader(BATCH_ROWS))
        yield Answer(reader.schema, _batches(attended, reader))


@contextmanager
def guarded(snapshot: Path, root: Path, limits: Limits) -> Iterator[duckdb.DuckDBPyConnection]:
    """The snapshot, attached to a DuckDB of its own that can reach nothing but the root's files, and keeps to `limits`.

    Of its own, since connections of one process to one file share their settings.
    """
    with tempfile.TemporaryDirectory(prefix="rlsift-") as spill, duckdb.connect() as connection:
        connection.execute(f"ATTACH {quoted(snapshot)} AS warehouse (READ_ONLY)")
        connection.execute("USE warehouse")
        connection.execute(OF_EVERY_CONNECTION)
        connection.execute(f"SET VARIABLE root = {quoted(root)}")
        connection.execute(f"SET temp_directory = {quoted(spill)}")
        connection.execute(f"SET max_temp_directory_size = '{SPILL}'")
        try:
            if not SIZE.fullmatch(limits.memory):
                raise ValueError(limits.memory)
            connection.execute(f"SET memory_limit = {quoted(limits.memory)}")
        except (ValueError, duckdb.Error) as error:
            raise WarehouseError(f"memory {limits.memory!r}: give a number with its unit, as 500MB or 4GB") from error
        connection.execute("SET autoinstall_known_extensions = false")
        connection.execute("SET autoload_known_extensions = false")
        connection.execute(f"SET allowed_directories = [{quoted(f'{root}/')}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


class _Attended:
    """Calls DuckDB from a thread of its own, so that the limit of time and Ctrl-C reach it while it computes.

    The clock runs only in these calls: whoever reads slowly loses nothing.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, thread: ThreadPoolExecutor, limits: Limits) -> None:
        self._connection, self._thread, self._limits = connection, thread, limits
        self._seconds_left = limits.seconds

    def call(self, work: Callable[[], T]) -> T:
        started = time.monotonic()
        future = self._thread.submit(work)
        try:
            if not wait([future], timeout=min(self._seconds_left, TIMEOUT_MAX)).done:
                raise LimitReached("seconds", f"the statement was ended after its {self._limits.seconds:g} s")
            return future.result()
        except (duckdb.Error, OSError) as error:  # OSError from the reader, with DuckDB's text
            if "Out of Memory Error" in str(error):
                disk = f"{SPILL} of disk beside it"
                needs = f"the statement needs more than its {self._limits.memory} of memory, and {disk}"
                raise LimitReached("memory", needs) from error
            raise WarehouseError(_in_words(str(error))) from error
        finally:
            while not future.done():  # interrupted before it had begun, DuckDB would go on
                self._connection.interrupt()
                wait([future], timeout=0.05)
            self._seconds_left -= time.monotonic() - started


def _batches(attended: _Attended, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while (batch := attended.call(lambda: next(reader, None))) is not None:
        yield batch


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise WarehouseError(str(error)) from error
    kinds = [statement.type for statement in statements]
    if not kinds:
        raise WarehouseError("the statement is empty")
    if kinds == PIVOT and not statements[0].query:
        return
    for statement in statements:
        if statement.type not in READS:
            raise WarehouseError(
                f"{_verb(statement)} is refused. Queries only read: "
                "SELECT, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE, PIVOT, EXPLAIN; rows are written by the pipeline."
            )
    if len(kinds) > 1:
        raise WarehouseError(f"one statement at a time: there are {len(kinds)}")
    if kinds == [duckdb.StatementType.EXPLAIN]:
        _check(connection, _explained(sql))  # EXPLAIN ANALYZE COPY writes the file


def _verb(statement: duckdb.Statement) -> str:
    """The word that says what it does; behind WITH it stands anywhere."""
    text = statement.query.encode()
    words = (WORD.match(text[start:].decode()) for start, _ in duckdb.tokenize(statement.query))
    first = next((word[0].upper() for word in words if word), "WITH")
    return statement.type.name if first == "WITH" else first


def _explained(sql: str) -> str:
    """What is explained: the text behind EXPLAIN, ANALYZE and options in brackets."""
    text = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)]
    rest = starts[1:]
    if text[rest[0] :][:7].upper() == b"ANALYZE":
        rest = rest[1:]
    if text[rest[0] : rest[0] + 1] == b"(":
        closing = next(i for i, start in enumerate(rest) if text[start : start + 1] == b")")
        rest = rest[closing + 1 :]
    return text[rest[0] :].decode()


def _in_words(error: str) -> str:
    if "file system operations are disabled" in error:
        return f"{error}\nOnly files under the root can be read: put yours there, and name it by its whole path."
    if "INTERRUPT Error" in error:
        return LOST
    return error


def quoted(value: object) -> str:
    """A literal of SQL."""
    doubled = str(value).replace("'", "''")
    return f"'{doubled}'"
