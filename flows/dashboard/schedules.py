"""The schedule of a run on the deployment `stage`: one stage at a time, each beginning where the last ended."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import DeploymentSchedule, StateType
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

from pipeline_lib.config import RunConfig

STAGE = "stage/stage"
HEAD_START = timedelta(seconds=15)
"""From the making of a schedule to its first run, in which the server learns of it."""


def every(interval: timedelta) -> IntervalSchedule:
    """The first at once."""
    return IntervalSchedule(interval=interval, anchor_date=datetime.now(UTC) + HEAD_START)


def daily(at: time, timezone: str) -> CronSchedule:
    return CronSchedule(cron=f"{at.minute} {at.hour} * * *", timezone=timezone)


def schedule_stages(client: SyncPrefectClient, config: RunConfig, when: IntervalSchedule | CronSchedule) -> None:
    """Schedule the stages of the run; one schedule bears its name, and a new one takes the place of the old."""
    unschedule(client, config.name)
    schedule = DeploymentScheduleCreate(
        schedule=when, slug=config.name, parameters={"config": config.model_dump(mode="json"), "stage": None}
    )
    deployment = client.read_deployment_by_name(STAGE).id
    client.create_deployment_schedules(deployment, [schedule])
    # A request that a busy server has carried out and not answered is sent again.
    for twin in _of_run(client.read_deployment_schedules(deployment), config.name)[1:]:
        client.delete_deployment_schedule(deployment, twin.id)


def unschedule(client: SyncPrefectClient, run_id: str) -> bool:
    """Take the schedule of the run away; False where it has none."""
    deployment = client.read_deployment_by_name(STAGE)
    found = _of_run(deployment.schedules, run_id)
    for schedule in found:
        client.delete_deployment_schedule(deployment.id, schedule.id)
    return bool(found)


def pause_schedule(run_id: str) -> None:
    """Pause what is scheduled for the run on the deployment that this flow run belongs to.

    Runs of it that were due while others went on, and have not begun, are dropped.
    """
    deployment = runtime.deployment.id
    waiting = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
    )
    with get_client(sync_client=True) as client:
        schedules = _of_run(client.read_deployment_schedules(deployment), run_id)
        for schedule in schedules:
            client.update_deployment_schedule(deployment, schedule.id, active=False)
        for run in client.read_flow_runs(flow_run_filter=waiting) if schedules else []:
            if run.auto_scheduled and run.run_count == 0 and run.parameters["config"]["name"] == run_id:
                client.delete_flow_run(run.id)


def _of_run(schedules: list[DeploymentSchedule], run_id: str) -> list[DeploymentSchedule]:
    return [schedule for schedule in schedules if schedule.slug == run_id]
