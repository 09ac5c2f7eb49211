"""The one costly thing that a process keeps from one piece of work to the next: a policy, with what belongs to it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.RLock()
_closing = ExitStack()
_slot: list[tuple[object, Any]] = []
"""(key, value), or empty."""


@contextmanager
def kept(key: object, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """What was kept under an equal key, else what `make` opens, after whatever else was kept is closed.

    It stays open for the next caller until `drop_kept`, or until the block fails. Threads take turns.
    """
    with _lock:
        if not _slot or _slot[0][0] != key:
            drop_kept()
            _slot.append((key, _closing.enter_context(make())))
        try:
            yield _slot[0][1]
        except BaseException:  # a device out of memory, a half-prepared scorer: the next attempt begins anew
            drop_kept()
            raise


def drop_kept() -> None:
    """Close what is kept; nothing is done where nothing is."""
    with _lock:
        _slot.clear()
        _closing.close()


atexit.register(drop_kept)
