"""Artifacts on their way to the server, in a thread of their own: no step waits for one that is slow or gone."""

from __future__ import annotations

import contextvars
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.utilities.context import get_task_and_flow_run_ids

PATIENCE_SECONDS = 3.0
"""How long the end of a step waits for what is not sent yet."""
REQUEST_SECONDS = 10.0
RETRY_SECONDS = 5.0
MAX_FAILURES = 12
"""In a row, after which the rest is given up."""
MAX_CHARACTERS = 100_000
"""Artifacts lie in the server's database."""

logger = logging.getLogger("rlsift.page")


@dataclass(frozen=True)
class Shown:
    """One artifact: Markdown, or rows of a table. The list of a run's artifacts shows the description alone."""

    description: str
    data: str | Sequence[Mapping[str, Any]]

    @property
    def type(self) -> str:
        return "markdown" if isinstance(self.data, str) else "table"

    @property
    def text(self) -> str:
        """As the server keeps it; a table that would be too long loses its last rows."""
        if isinstance(self.data, str):
            return self.data
        rows = list(self.data)
        while len(text := json.dumps(rows)) > MAX_CHARACTERS:
            rows = rows[: len(rows) // 2]
        return text


class Sender:
    """Artifacts of the flow run that it is made in, under keys that are the same in every attempt.

    A flow run has one artifact of a key, which is replaced by newer ones; every run adds one to the key's history.
    Made in the thread of the task run, whose context the sending thread shares.
    """

    def __init__(self, run_id: str, stage: int) -> None:
        self._prefix = re.sub("[^a-z0-9]+", "-", f"{run_id}-stage-{stage}".lower())
        self._task_run_id, flow_run_id = get_task_and_flow_run_ids()
        assert flow_run_id is not None
        self._flow_run_id = flow_run_id
        self._changed = threading.Condition()
        self._waiting: dict[str, Callable[[], Shown]] = {}
        self._idle = True
        self._closed = False
        self._ids: dict[str, UUID] = {}
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="artifacts", daemon=True)

    def put(self, name: str, build: Callable[[], Shown]) -> None:
        """Show what `build` gives, which is called in the sending thread; it takes the place of what still waits."""
        with self._changed:
            self._waiting[name] = build
            self._changed.notify_all()

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give what waits a moment to leave; after that the thread goes on alone as long as the process lives."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._idle and not self._waiting, PATIENCE_SECONDS)

    def _work(self) -> None:
        failures = 0
        with get_client(httpx_settings={"timeout": REQUEST_SECONDS}, sync_client=True) as client:
            while failures < MAX_FAILURES and (taken := self._take()) is not None:
                name, build = taken
                try:
                    shown = build()
                except Exception as error:  # no page is worth a step
                    logger.warning("%s cannot be shown on the page of this run: %r", name, error)
                    continue
                try:
                    self._send(client, name, shown)
                    failures = 0
                except Exception as error:  # of the server or the network
                    failures += 1
                    if failures == 1:
                        logger.warning("The page of this run lacks %s for now: %r", name, error)
                    with self._changed:
                        self._waiting.setdefault(name, build)
                    time.sleep(RETRY_SECONDS)

    def _take(self) -> tuple[str, Callable[[], Shown]] | None:
        """What waits longest; None when there will be nothing more."""
        with self._changed:
            self._idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            if not self._waiting:
                return None
            self._idle = False
            name = next(iter(self._waiting))
            return name, self._waiting.pop(name)

    def _send(self, client: SyncPrefectClient, name: str, shown: Shown) -> None:
        key = f"{self._prefix}-{name}"
        known = self._ids.get(key) or self._find(client, key)
        if known is None:
            artifact = ArtifactCreate(
                key=key,
                type=shown.type,
                description=shown.description,
                data=shown.text,
                flow_run_id=self._flow_run_id,
                task_run_id=self._task_run_id,
            )
            known = client.create_artifact(artifact).id
        else:
            client.update_artifact(known, ArtifactUpdate(description=shown.description, data=shown.text))
        self._ids[key] = known

    def _find(self, client: SyncPrefectClient, key: str) -> UUID | None:
        """Of an earlier step or attempt of this flow run."""
        mine = ArtifactFilter(
            key=ArtifactFilterKey(any_=[key]), flow_run_id=ArtifactFilterFlowRunId(any_=[self._flow_run_id])
        )
        found = client.read_artifacts(artifact_filter=mine, limit=1)
        return found[0].id if found else None
