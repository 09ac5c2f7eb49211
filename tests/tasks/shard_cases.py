"""Shards that need nothing, and a task runner of Prefect's kind that asks no server."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prefect.futures import PrefectConcurrentFuture

from tasks.runners import R, S


@dataclass(frozen=True)
class Number:
    value: int

    @property
    def label(self) -> str:
        return f"number {self.value}"


class Threads:
    """Runs tasks in two threads, in the order they came."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.gate = threading.Event()
        self.cancelled: list[Any] = []

    def submit(self, task: Any, parameters: dict[str, Any]) -> PrefectConcurrentFuture[Any]:
        return PrefectConcurrentFuture(uuid.uuid4(), self.pool.submit(task.fn, **parameters))

    def cancel(self, future: PrefectConcurrentFuture[Any]) -> None:
        self.cancelled.append(future)
        future.wrapped_future.cancel()


class Elsewhere:
    """Whatever goes there and comes back is pickled; the last shard is done first."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def map(self, function: Callable[[S], R], shards: Sequence[S]) -> Iterator[R]:
        for number, shard in enumerate(reversed(shards)):
            if number == self.fails_at:
                raise RuntimeError(f"no room for {shard.label}")
            there, argument = pickle.loads(pickle.dumps((function, shard)))
            yield pickle.loads(pickle.dumps(there(argument)))


@contextmanager
def elsewhere(fails_at: int | None = None) -> Iterator[Elsewhere]:
    yield Elsewhere(fails_at)
