"""The whole run: prepare, M stages, report."""

from __future__ import annotations

from prefect import flow

from flows.chain import finish, look_up, prepare, walk
from flows.runs import record_run
from flows.stage import curriculum_stage
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task


@flow(name="curriculum", flow_run_name="{config.name}")
def curriculum(config: RunConfig) -> None:
    """Do every step of the run that is not recorded complete."""
    record_run(config, "running")
    try:
        prepare(config, perform_as_task)
        for stage in range(1, config.stages + 1):
            curriculum_stage(config, stage)
        finish(config, *walk(config, look_up, stages=config.stages), perform_as_task)
    except BaseException:
        record_run(config, "failed")
        raise
    record_run(config, "completed")
