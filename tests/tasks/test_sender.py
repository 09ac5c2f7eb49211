"""Artifacts on their way: a key each, the newest only, and no step held up by a server that is gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tasks.artifacts import sender as module
from tasks.artifacts.sender import Sender, Shown


class Server:
    """Answers as the client does; refuses the next `gone` requests."""

    def __init__(self) -> None:
        self.artifacts: dict[UUID, Any] = {}
        self.gone = 0
        self.writes: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def read_artifacts(self, artifact_filter: Any, limit: int) -> list[Any]:
        self._answer()
        return [a for a in self.artifacts.values() if a.key in artifact_filter.key.any_]

    def create_artifact(self, artifact: Any) -> Any:
        self._answer()
        made = SimpleNamespace(id=uuid4(), key=artifact.key, type=artifact.type, data=artifact.data)
        self.artifacts[made.id] = made
        self.writes.append(artifact.data)
        return made

    def update_artifact(self, artifact_id: UUID, artifact: Any) -> None:
        self._answer()
        self.artifacts[artifact_id].data = artifact.data
        self.writes.append(artifact.data)

    def _answer(self) -> None:
        self.open.wait()
        if self.gone:
            self.gone -= 1
            raise ConnectionError("nobody listens")

    def shown(self) -> dict[str, str]:
        return {artifact.key: artifact.data for artifact in self.artifacts.values()}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()

    @contextmanager
    def get_client(**_: Any) -> Iterator[Server]:
        yield server

    monkeypatch.setattr(module, "get_client", get_client)
    monkeypatch.setattr(module, "get_task_and_flow_run_ids", lambda: (uuid4(), uuid4()))
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    yield server
    server.open.set()


def words(text: str) -> Any:
    return lambda: Shown("", text)


def test_a_key_names_run_stage_and_part_and_has_one_artifact_in_a_flow_run(server: Server) -> None:
    for text in ("first attempt", "second attempt"):
        with Sender("Demo_run.2", 1) as sender:
            sender.put("stages", words(text))
    assert server.shown() == {"demo-run-2-stage-1-stages": "second attempt"}


def test_what_waits_is_replaced_by_what_is_newer(server: Server) -> None:
    server.open.clear()
    with Sender("r", 1) as sender:
        for n in range(100):
            sender.put("progress", words(f"{n} done"))
        server.open.set()
    assert server.shown() == {"r-stage-1-progress": "99 done"}
    assert len(server.writes) <= 2


def test_a_server_that_comes_back_gets_everything_and_the_log_one_warning(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.gone = 4
    with caplog.at_level(logging.WARNING), Sender("r", 1) as sender:
        sender.put("stages", words("table"))
        sender.put("progress", words("done"))
    assert server.shown() == {"r-stage-1-stages": "table", "r-stage-1-progress": "done"}
    assert len(caplog.messages) == 1 and "nobody listens" in caplog.messages[0]


def test_a_page_that_cannot_be_made_leaves_the_others_alone(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Shown:
        raise KeyError("no such column")

    with Sender("r", 1) as sender:
        sender.put("broken", broken)
        sender.put("whole", words("text"))
    assert server.shown() == {"r-stage-1-whole": "text"}
    assert len(caplog.messages) == 1 and "no such column" in caplog.messages[0]


def test_a_step_ends_although_the_server_never_answers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    server.open.clear()
    with Sender("r", 1) as sender:
        sender.put("stages", words("table"))
    assert server.shown() == {}
