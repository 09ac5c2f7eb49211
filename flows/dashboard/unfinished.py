"""Flow runs that are in the middle of their work, and what becomes of them when the dashboard stops."""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

_AT_WORK = FlowRunFilterState(
    type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
)


def runs_at_work(client: SyncPrefectClient) -> list[FlowRun]:
    """Of deployments alone: a run from a shell, reporting to this server, is not ours to end."""
    return [run for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=_AT_WORK)) if run.deployment_id]


def mark_stopped(client: SyncPrefectClient, runs: list[FlowRun]) -> None:
    """Mark those, and the stages in them, that ended without a word: they would stay Running for ever."""
    if not runs:
        return
    ids = [run.id for run in runs]
    themselves = FlowRunFilter(state=_AT_WORK, id=FlowRunFilterId(any_=ids))
    stages = FlowRunFilter(state=_AT_WORK, parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=ids))
    for filter in (themselves, stages):
        for run in client.read_flow_runs(flow_run_filter=filter):
            message = "The dashboard was stopped. Retry goes on from the last finished step."
            client.set_flow_run_state(run.id, Crashed(message=message), force=True)
