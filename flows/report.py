"""The report of a run, finished or not."""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.logging import get_run_logger

from flows.chain import Pending, finish, look_up, walk
from pipeline_lib.config import RunConfig
from tasks.prefect_task import perform_as_task
from tasks.report import write_report
from warehouse import Warehouse


@flow(name="report", flow_run_name="{config.name} · report")
def report(config: RunConfig) -> None:
    """Write the HTML report of what the run has done so far. No other step is done for it."""
    try:
        steps = walk(config, look_up, stages=config.stages)
    except Pending as pending:
        path = write_report(Warehouse(Path(config.root)), config.name)
        get_run_logger().info("%s is not done yet; %s tells of what is.", pending.step.label, path)
    else:
        finish(config, *steps, perform_as_task)
