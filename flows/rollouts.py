"""Stage 0 alone, on the machines that are good at generating: what every stage of a curriculum starts from."""

from __future__ import annotations

from prefect import flow

from flows.chain import first_pending, prepare
from flows.runs import recording
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task


@flow(name="rollouts", flow_run_name="{config.name} · rollouts")
def rollouts(config: RunConfig) -> None:
    """Import the initial policy, read the prompts, roll them out under it, evaluate it."""
    with recording(config, "waiting" if first_pending(config) else "completed"):
        prepare(config, perform_as_task)
