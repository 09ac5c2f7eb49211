"""Workers of Ray: those of a cluster that is there already, or a Ray of our own on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from prefect_ray import RayTaskRunner
from prefect_ray.context import remote_options
from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

from pipeline_lib.config import RayRunner
from tasks.runners.mapped import MappedShards

ON_THIS_MACHINE = {
    "address": "local",  # not one that somebody else has started here
    "include_dashboard": False,
}


@contextmanager
def open_ray(config: RayRunner) -> Iterator[MappedShards]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    takes = {"num_cpus": config.num_cpus} | ({"num_gpus": config.num_gpus} if config.num_gpus else {})
    with ExitStack() as held:
        try:
            runner = held.enter_context(RayTaskRunner(config.address, None if config.address else ON_THIS_MACHINE))
        except ConnectionError as error:
            raise ValueError(
                f"task_runner.address={config.address}: no Ray cluster answers there ({error}); start one with "
                "`ray start --head`, or leave the address out for a Ray on this machine"
            ) from error
        held.enter_context(remote_options(**takes))
        yield MappedShards(runner, cancel=_cancel, died=(WorkerCrashedError, NodeDiedError, OutOfMemoryError))


def _cancel(future: Any) -> None:
    ray.cancel(future.wrapped_future)
