"""`rlsift dashboard` in a process of its own, and what a browser would ask its server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml
from flow_cases import TINY, command, environment, processes_marked, wait_until

ONE_STAGE = TINY.replace("stages: 2", "stages: 1").replace("steps: 3", "steps: 2")
RETRY = {
    "state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"},
    "force": True,
}
"""What the button Retry sends, as captured from the browser."""


def tiny_parameters(root: Path, **changed: Any) -> dict[str, Any]:
    return {"config": yaml.safe_load(ONE_STAGE) | {"root": str(root)} | changed}


class Dashboard:
    """A dashboard over `directory`/root, in a session of its own as a terminal starts it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.mark = f"RLSIFT_TEST_MARK={uuid.uuid4()}"
        self.log = directory / f"dashboard-{self.mark[-8:]}.log"
        name, _, value = self.mark.partition("=")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command("dashboard", "--root", self.root),
                env=environment() | {name: value},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        def is_up() -> bool:
            assert self.process.poll() is None, self.said()
            return "Ctrl-C stops it." in self.said()

        wait_until(is_up, "dashboard")
        self.url = (self.root / "dashboard" / "address").read_text()
        self.api = httpx.Client(base_url=f"{self.url}/api", timeout=60)

    def said(self) -> str:
        return self.log.read_text()

    def left(self) -> list[str]:
        return processes_marked(self.mark)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """POST, again where SQLite was locked. Raises for any other refusal."""
        while (answer := self.api.post(path, json=body or {})).status_code == 503:
            time.sleep(0.5)
        answer.raise_for_status()
        return answer.json()

    def deployment(self, name: str) -> str:
        [found] = self.ask("/deployments/filter", {"deployments": {"name": {"any_": [name]}}})
        return found["id"]

    def create_run(self, deployment: str, parameters: dict[str, Any], tags: Sequence[str] = ()) -> str:
        wanted = {"parameters": parameters, "tags": list(tags)}
        return self.ask(f"/deployments/{self.deployment(deployment)}/create_flow_run", wanted)["id"]

    def run(self, run: str) -> dict[str, Any]:
        return self.ask("/flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})[0]

    def child(self, run: str, name: str) -> str:
        """The run of another deployment that `run` has started."""
        filter = {"parent_flow_run_id": {"any_": [run]}, "name": {"any_": [name]}}
        [found] = self.ask("/flow_runs/filter", {"flow_runs": filter})
        return found["id"]

    def wait_for(self, run: str, state: str, *, attempt: int = 1) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.said()
            now = self.run(run)
            if now["state_name"] == state and now["run_count"] == attempt:
                return True
            unwanted = {"Completed", "Failed", "Crashed", "Cancelled"}
            assert now["run_count"] < attempt or now["state_name"] not in unwanted, (now["state"], self.sentences(run))
            time.sleep(1)
            return False

        wait_until(reached, f"{state} run")

    def sentences(self, run: str) -> list[str]:
        return [log["message"] for log in self.ask("/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})]

    def task_states(self) -> list[tuple[str, str]]:
        """Step and state of every task run, first to last."""
        tasks = self.ask("/task_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
        return [(task["name"].partition(" · ")[2], task["state_name"]) for task in tasks]

    def end(self) -> None:
        """Where a test failed half-way, or has nothing more to ask."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
