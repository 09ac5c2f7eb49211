"""Flow runs that are in the middle of their work, and what becomes of them when the dashboard stops."""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

AT_WORK = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]


def runs_at_work(client: SyncPrefectClient) -> list[FlowRun]:
    """Of deployments alone: a run from a shell, reporting to this server, is not ours to end."""
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=AT_WORK))
    return [run for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=state)) if run.deployment_id]


def mark_stopped(client: SyncPrefectClient, runs: list[FlowRun]) -> None:
    """Their processes are gone: without this they would stay Running until heartbeats are missed."""
    for run in runs:
        message = "The dashboard was stopped. Retry goes on from the last finished step."
        client.set_flow_run_state(run.id, Crashed(message=message), force=True)
