"""One curriculum stage: score, select, train, evaluate; after the last one, the report. One task a step."""

from __future__ import annotations

from typing import Annotated

from prefect import flow, runtime
from prefect.states import Completed, State
from pydantic import Field

from flows.chain import finish, first_pending, recorded_or, run_stage, walk
from flows.dashboard.schedules import pause_schedule
from flows.runs import recording
from pipeline_lib.config import ConfigError, RunConfig
from tasks.prefect_task import perform_as_task

FINISHED = "Finished"
"""The state of a run after which nothing is left to do. What waits for Completed, to start the next, stops at it."""


def _run_name() -> str:
    config, stage = (runtime.flow_run.parameters[name] for name in ("config", "stage"))
    return f"{config.name} · stage {_next_stage(config) if stage is None else stage}/{config.stages}"


@flow(name="stage", flow_run_name=_run_name)
def curriculum_stage(config: RunConfig, stage: Annotated[int, Field(ge=1)] | None = None) -> State[None] | None:
    """Run stage `stage` (from 1), or the first that is not recorded complete: so one schedule takes them in turn.

    What it builds on is looked up, or done first where it is not recorded. Raises ConfigError for a stage that the
    run does not have.
    """
    number = _next_stage(config) if stage is None else stage
    if number > config.stages:
        raise ConfigError(f"stage={number}: the run {config.name} has {config.stages}; name one of them, or none")
    last = number == config.stages
    with recording(config, "completed" if last else "waiting"):
        prepared, earlier = walk(config, recorded_or(perform_as_task), stages=number - 1)
        done = run_stage(config, number, prepared, earlier, perform_as_task)
        if not last:
            return None
        finish(config, prepared, [*earlier, done], perform_as_task)
    if runtime.deployment.id is not None:
        pause_schedule(config.name)
    return Completed(name=FINISHED, message=f"Every stage of {config.name} is complete.")


def _next_stage(config: RunConfig) -> int:
    step = first_pending(config)
    return config.stages if step is None else max(1, step.stage)
