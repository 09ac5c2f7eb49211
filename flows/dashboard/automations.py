"""What the server does by itself with runs whose process or machine is gone."""

from __future__ import annotations

from datetime import timedelta

from prefect.automations import AutomationCore, ChangeFlowRunState, EventTrigger, Posture
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.schemas.events import ResourceSpecification

AUTORETRY = "autoretry"
MAX_AUTOMATIC_RETRIES = 3
SILENT_SECONDS = 90
"""Three heartbeats missed."""

CRASH_ZOMBIES = AutomationCore(
    name="Runs without a heartbeat are Crashed",
    description=f"A flow run of which nothing is heard for {SILENT_SECONDS} s has lost its process or its machine.",
    trigger=EventTrigger(
        posture=Posture.Proactive,
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    ),
    actions=[
        ChangeFlowRunState(
            state=StateType.CRASHED,
            name="Crashed",
            message=f"Nothing was heard of this run for {SILENT_SECONDS} s. Retry goes on from the last finished step.",
            force=False,
        )
    ],
)
RETRY_CRASHED = AutomationCore(
    name=f"Crashed runs tagged {AUTORETRY} are retried",
    description=f"After a run's first {MAX_AUTOMATIC_RETRIES} attempts, those by hand included, it is left Crashed.",
    trigger=EventTrigger(
        posture=Posture.Reactive,
        expect={"prefect.flow-run.Crashed"},
        match=ResourceSpecification(
            {
                "prefect.resource.id": "prefect.flow-run.*",
                "prefect.run-count": [str(n) for n in range(1, MAX_AUTOMATIC_RETRIES + 1)],
            }
        ),
        match_related=ResourceSpecification(
            {"prefect.resource.id": f"prefect.tag.{AUTORETRY}", "prefect.resource.role": "tag"}
        ),
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(0),
    ),
    actions=[
        ChangeFlowRunState(
            state=StateType.SCHEDULED, name="AwaitingRetry", message="Retried by an automation.", force=False
        )
    ],
)


def register_automations(client: SyncPrefectClient) -> None:
    """Make those that are missing. One that is there stays: updated, it would forget the runs it is waiting for."""
    for automation in (CRASH_ZOMBIES, RETRY_CRASHED):
        if not client.read_automations_by_name(automation.name):
            client.create_automation(automation)
