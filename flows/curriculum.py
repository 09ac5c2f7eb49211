"""The whole run: stage 0, then the M stages, the last of which ends with the report."""

from __future__ import annotations

from prefect import flow, runtime

from flows.chain import is_recorded, prepare
from flows.elsewhere import run_elsewhere
from flows.runs import recording
from flows.stage import curriculum_stage
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task


@flow(name="curriculum", flow_run_name="{config.name}")
def curriculum(config: RunConfig) -> None:
    """Do every step of the run that is not recorded complete.

    Deployed, what is left of stage 0 and of each stage is a run of the deployments `rollouts` and `stage`, on their
    work pool. Called from a shell, all is done in this process.
    """
    deployed = runtime.deployment.id is not None
    parameters = {"config": config.model_dump(mode="json")}
    with recording(config, "completed"):
        if deployed and not is_recorded(config, stages=0):
            run_elsewhere("rollouts/rollouts", parameters, part="rollouts")
        else:
            prepare(config, perform_as_task)
        for stage in range(1, config.stages + 1):
            if deployed and not is_recorded(config, stages=stage):
                run_elsewhere("stage/stage", parameters | {"stage": stage}, part=f"stage-{stage}")
            else:
                curriculum_stage(config, stage)
