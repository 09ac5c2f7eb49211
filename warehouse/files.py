"""What the file system owes the warehouse: a lock between processes, cheap copies, durable renames."""

import fcntl
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.errors import WarehouseError

FICLONE = 0x40049409  # linux/fs.h: share the source's extents instead of copying them


@contextmanager
def exclusive_lock(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold an exclusive flock on `path`, between threads as between processes.

    The kernel drops the lock when its holder dies. Raises WarehouseError, naming the holder's process
    id, when the lock is still taken after `timeout_seconds`.
    """
    deadline = time.monotonic() + timeout_seconds
    with open(path, "a+") as file:
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                holder = path.read_text() or "(not yet named)"
                raise WarehouseError(f"{path} is still held by process {holder} after {timeout_seconds:g} s")
            time.sleep(random.uniform(0.002, 0.02))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Not left to close(): a child forked meanwhile shares this lock and would keep it.
            fcntl.flock(file, fcntl.LOCK_UN)


def holder(path: Path) -> str | None:
    """The id of the process that holds the `exclusive_lock` on `path`; None when nobody does.

    For an instant it shares the free lock: whoever wants it meanwhile tries again.
    """
    if not path.exists():
        return None
    with open(path) as file:
        return None if _try_lock(file.fileno(), fcntl.LOCK_SH) else file.read()


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def clone_file(source: Path, target: Path, *, mode: int) -> None:
    """Copy `source` to the new file `target`, by reference where the file system can, and fsync it."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            fcntl.ioctl(writer, FICLONE, reader.fileno())
        except OSError:  # no such ioctl here, or another file system
            shutil.copyfileobj(reader, writer, 1 << 20)
        os.fchmod(writer.fileno(), mode)
        writer.flush()
        os.fsync(writer.fileno())


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the block to end; for blocks of well under a second.

    A file on which DuckDB was interrupted in the middle of a statement cannot be opened again by this process:
    `duckdb.connect` spins for ever.
    """
    if threading.current_thread() is not threading.main_thread():  # no handler of Python's runs in this one
        yield
        return
    came: list[int] = []
    former = {
        number: signal.signal(number, lambda n, frame: came.append(n)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for arrived in came[:1]:
            signal.raise_signal(arrived)


def fsync_directory(path: Path) -> None:
    """Make the renames done in `path` survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
