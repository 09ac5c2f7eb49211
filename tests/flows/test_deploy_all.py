"""`prefect deploy --all` against a server of its own, as the head of prefect.yaml tells it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from flow_cases import environment

from flows.prefect_server import OFFLINE, Server, free_port

ROOT = Path(__file__).parents[2]
CHANGES_EACH_TIME = {"updated", "version", "version_id", "version_info", "last_polled", "status"}


def registered(server: Server) -> list[dict[str, Any]]:
    found = httpx.post(f"{server.url}/api/deployments/filter", json={}, timeout=60).json()
    for deployment in found:
        deployment["schedules"] = [
            {key: schedule[key] for key in ("slug", "active", "schedule", "parameters")}
            for schedule in deployment["schedules"]
        ]
        limit = deployment.pop("global_concurrency_limit")
        deployment["limit"] = limit and limit["limit"]
    return sorted(
        ({key: value for key, value in d.items() if key not in CHANGES_EACH_TIME} for d in found),
        key=lambda d: d["name"],
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deploying_everything_twice_changes_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, free_port(), OFFLINE)

    def prefect(*arguments: str) -> None:
        answer = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            cwd=ROOT,
            env=environment() | OFFLINE | server.settings,
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr

    server.start()
    try:
        server.wait_until_it_answers()
        for pool in ("cpu", "gpu"):
            prefect("work-pool", "create", pool, "--type", "process")
        prefect("deploy", "--all")
        first = registered(server)
        assert {(d["name"], d["work_pool_name"], d["limit"]) for d in first} == {
            ("curriculum", "cpu", 1),
            ("stage", "gpu", 1),
            ("rollouts", "gpu", 1),
            ("evaluate", "gpu", 1),
            ("report", "cpu", None),
        }
        for deployment in first:
            assert deployment["tags"] == ["rlsift"]
            if deployment["limit"]:
                assert deployment["concurrency_options"]["collision_strategy"] == "ENQUEUE"
        prefect("deploy", "--all")
        assert registered(server) == first
    finally:
        server.terminate()
        server.wait(10)
