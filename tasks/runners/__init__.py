"""Who works on a step's shards: its own process, or workers of Dask or Ray through Prefect's task runners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from pipeline_lib.config import DaskRunner, RayRunner, TaskRunner


class Shard(Protocol):
    @property
    def label(self) -> str:
        """E.g. "stage 0/2 · rollouts train · shard 3"."""


S = TypeVar("S", bound=Shard)
R = TypeVar("R")


class ShardRunner(Protocol):
    def map(self, function: Callable[[S], R], shards: Sequence[S]) -> Iterator[R]:
        """What `function` makes of each shard, as they finish.

        `function` belongs to a module, `shards` and results can be pickled, and it writes Parquet, never the warehouse:
        it may run on another machine. When one fails, no further one is begun, and its error follows the results of
        all that have finished.
        """


class InThisProcess:
    """One after another."""

    def map(self, function: Callable[[S], R], shards: Sequence[S]) -> Iterator[R]:
        return map(function, shards)


def open_runner(config: TaskRunner) -> AbstractContextManager[ShardRunner]:
    """Workers that it starts end with the block. Raises ValueError where those of `config.address` do not answer."""
    match config:
        case DaskRunner():
            from tasks.runners.dask import open_dask

            return open_dask(config)
        case RayRunner():
            from tasks.runners.ray import open_ray

            return open_ray(config)
        case _:
            return nullcontext(InThisProcess())
