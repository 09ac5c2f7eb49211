"""A flow as a run of its own deployment, on the work pool of that deployment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.states import AwaitingRetry, State

from flows.dashboard.automations import AUTORETRY
from tasks.errors import StepFailed

POLL_SECONDS = 2.0
COMES_BACK_SECONDS = 60.0
"""How long a crashed run that bears the tag autoretry is given to be scheduled again."""


def run_elsewhere(deployment: str, parameters: Mapping[str, Any], *, part: str) -> None:
    """Have `deployment` ("flow/deployment") run with `parameters` for this flow run, and wait for its end.

    `part` names it among all that this flow run has run. One that is there, from an attempt before this one, is waited
    for while it goes on and retried where it has ended; no second is started. Raises StepFailed where it does not
    complete.
    """
    key = f"{runtime.flow_run.id}-{part}"
    with get_client(sync_client=True) as client:
        run = _started_before(client, key) or _start(deployment, parameters, key)
        if run.state is not None and run.state.is_final():
            retry: State[None] = AwaitingRetry(message="Retried by the run that it is part of.")
            client.set_flow_run_state(run.id, retry, force=True)
        run = _wait(client, run)
    state = run.state
    assert state is not None
    if not state.is_completed():
        raise StepFailed(f"{run.name} ended as {state.name}: {state.message}; Retry on this run's page goes on with it")


def _started_before(client: SyncPrefectClient, key: str) -> FlowRun | None:
    same_key = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
    return next(iter(client.read_flow_runs(flow_run_filter=same_key)), None)


def _start(deployment: str, parameters: Mapping[str, Any], key: str) -> FlowRun:
    tags = set(runtime.flow_run.tags)
    run = run_deployment(deployment, parameters=dict(parameters), idempotency_key=key, tags=tags, timeout=0)
    assert isinstance(run, FlowRun)  # and no coroutine, which only a caller that is one gets
    return run


def _wait(client: SyncPrefectClient, run: FlowRun) -> FlowRun:
    crashed_at: float | None = None
    while True:
        time.sleep(POLL_SECONDS)
        with suppress(httpx.TransportError):  # a server that is started again answers in half a minute
            run = client.read_flow_run(run.id)
        state = run.state
        if state is None or not state.is_final():
            crashed_at = None
            continue
        if state.type is not StateType.CRASHED or AUTORETRY not in run.tags:
            return run
        crashed_at = crashed_at or time.monotonic()
        if time.monotonic() - crashed_at > COMES_BACK_SECONDS:
            return run
