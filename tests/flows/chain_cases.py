"""A run without Prefect, for tests in which it takes no part."""

from __future__ import annotations

from flow_cases import TINY

from flows.chain import Do, finish, walk
from flows.runs import record_run
from pipeline_lib.config import RunConfig
from tasks.step import perform

ONE_STAGE = TINY.replace("stages: 2", "stages: 1").replace("checkpoint_every: 2", "checkpoint_every: 1")


def run_chain(config: RunConfig, do: Do = perform) -> None:
    record_run(config, "running")
    finish(config, *walk(config, do, stages=config.stages), do)
    record_run(config, "completed")
