"""Workers of Dask: those of a scheduler that is there already, or processes on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import distributed
from prefect_dask import DaskTaskRunner

from pipeline_lib.config import DaskRunner
from tasks.runners.mapped import MappedShards

SETTINGS = {
    # Else a verifier could have no processes of its own.
    "distributed.worker.daemon": False,
    # They are set in this process, too, whose later children would get one thread each.
    "distributed.nanny.pre-spawn-environ": {},
    # Looks at deep stacks a hundred times a second, which costs more than it tells where a shard takes minutes.
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def open_dask(config: DaskRunner) -> Iterator[MappedShards]:
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it tells of every connection
    with dask.config.set(SETTINGS), _task_runner(config) as runner:
        try:
            _ = runner.client  # connects
        except OSError as error:
            raise ValueError(
                f"task_runner.address={config.address}: no Dask scheduler answers there ({error}); start one with "
                "`dask scheduler`, or set task_runner.workers for workers on this machine"
            ) from error
        yield MappedShards(runner, cancel=_cancel, died=(distributed.KilledWorker,))


def _task_runner(config: DaskRunner) -> DaskTaskRunner:
    if config.address is not None:
        return DaskTaskRunner(address=config.address)
    assert config.workers is not None
    return DaskTaskRunner(
        cluster_kwargs={
            "n_workers": config.workers,
            "threads_per_worker": 1,
            "host": "127.0.0.1",
            "dashboard_address": "127.0.0.1:0",
            "scheduler_kwargs": {"dashboard": False},
            "env": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or _share_of_cores(config.workers)},
            # A policy cannot be spilled to disk; to end its worker would only have the shard done again.
            "memory_limit": 0,
        }
    )


def _share_of_cores(workers: int) -> str:
    return str(max(1, (os.cpu_count() or 1) // workers))


def _cancel(future: Any) -> None:
    future.wrapped_future.cancel()
