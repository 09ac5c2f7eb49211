"""The offline rollouts of a run alone, on the machines that are good at generating."""

from __future__ import annotations

from prefect import flow

from flows.chain import begin, collect, look_up_or_perform
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task


@flow(name="rollouts", flow_run_name="{config.name} · rollouts")
def rollouts(config: RunConfig) -> None:
    """Roll the prompts out under the initial policy. Policy and prompts are looked up, or made first."""
    policy, ingest = begin(config, look_up_or_perform)
    collect(config, policy, ingest, perform_as_task)
