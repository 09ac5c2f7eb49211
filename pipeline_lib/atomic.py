"""Directories and files that are there whole or not at all: temporary name, fsync, rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENOSPC
from pathlib import Path

FULL_BYTES = 1 << 16
"""A disk with less than this left is taken for full."""


def is_disk_full(error: BaseException, directory: Path) -> bool:
    """Whether `error` comes of the disk of `directory`. Not every writer keeps the errno: safetensors tells it in its
    text, torch speaks of an unexpected position."""
    if not isinstance(error, Exception):
        return False
    told = getattr(error, "errno", None) == ENOSPC or os.strerror(ENOSPC) in str(error)
    return told or shutil.disk_usage(directory).free < FULL_BYTES


def fsync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8); a reader sees the old content or the new."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name to write a file under, which replaces `path` when the block ends well.

    Errors of the file system speak of `path`. Raises OSError where something is there that is no file: a directory, or
    a device, whose place the file would take.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(EEXIST, "is there, and is no regular file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        fsync_path(temporary)
        temporary.replace(path)
        fsync_path(path.parent)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None and Path(error.filename) == temporary:
            error.filename = str(path)
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary directory that becomes `path` when the block ends well; an older `path` is replaced.

    Every file in it is fsynced before the rename. On an exception nothing is left behind. Raises OSError (ENOSPC) where
    the disk is full, whatever words the writer has for that.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        for entry in temporary.rglob("*"):
            entry.chmod(0o755 if entry.is_dir() else 0o644)  # readable for whoever shares the root
            fsync_path(entry)
        fsync_path(temporary)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
        fsync_path(path.parent)
    except BaseException as error:
        is_full = is_disk_full(error, path.parent)
        shutil.rmtree(temporary, ignore_errors=True)
        if is_full:
            raise OSError(ENOSPC, "No space left on device", str(path)) from error
        raise


def remove_unfinished(directory: Path) -> None:
    """Remove what killed writers have left in it under temporary names; for whoever works in it alone."""
    for path in directory.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
