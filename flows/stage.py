"""One curriculum stage: score, select, train, evaluate. A flat flow, one task a step."""

from __future__ import annotations

from prefect import flow

from flows.chain import look_up_or_perform, run_stage, walk
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task


@flow(name="stage", flow_run_name="{config.name} · stage {stage}/{config.stages}")
def curriculum_stage(config: RunConfig, stage: int) -> None:
    """Run stage `stage` (from 1). What it builds on is looked up, or done first where it is not recorded."""
    prepared, earlier = walk(config, look_up_or_perform, stages=stage - 1)
    run_stage(config, stage, prepared, earlier, perform_as_task)
