"""Stages one by one: by a schedule that pauses itself, and each started by the one before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboard_cases import Dashboard
from flow_cases import TINY, rlsift, rows, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHAINED = "The next stage when the last one completed"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path_factory.mktemp("scheduled"))
    try:
        dashboard.wait()
        yield dashboard
    finally:
        dashboard.end()


def config(dashboard: Dashboard, name: str, seed: int) -> dict[str, Any]:
    """With a seed of its own, a run finds nothing of another one's complete."""
    tiny = yaml.safe_load(TINY) | {"root": str(dashboard.root), "name": name, "seed": seed}
    return tiny | {"train": tiny["train"] | {"steps": 1, "checkpoint_every": 1}}


def stages_run(dashboard: Dashboard, name: str) -> list[tuple[str, str]]:
    runs = dashboard.ask("/flow_runs/filter", {"sort": "START_TIME_ASC"})
    return [(run["name"], run["state_name"]) for run in runs if run["name"].startswith(f"{name} · stage")]


def schedules(dashboard: Dashboard) -> dict[str, bool]:
    [stage] = dashboard.ask("/deployments/filter", {"deployments": {"name": {"any_": ["stage"]}}})
    return {schedule["slug"]: schedule["active"] for schedule in stage["schedules"]}


def test_a_schedule_takes_stage_after_stage_and_pauses_itself(dashboard: Dashboard, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(config(dashboard, "nightly", 1)))
    made = rlsift("schedule", file, "--every", "1m")
    assert made.returncode == 0, made.stderr
    assert "Stage 1/2 of nightly begins now, then one stage every 1m." in made.stdout
    wait_until(lambda: schedules(dashboard) == {"nightly": False}, "schedule that paused itself")
    wait_until(lambda: ("nightly · stage 2/2", "Finished") in stages_run(dashboard, "nightly"), "end of the last stage")
    assert stages_run(dashboard, "nightly") == [
        ("nightly · stage 1/2", "Completed"),
        ("nightly · stage 2/2", "Finished"),
    ]
    assert rows(dashboard.root, "SELECT status FROM runs WHERE run_id = 'nightly'") == [{"status": "completed"}]
    attempts = rows(dashboard.root, "SELECT max(attempts) AS most FROM run_progress WHERE run_id = 'nightly'")
    assert attempts == [{"most": 1}]

    again = rlsift("schedule", "nightly", "--at", "22:00", "--root", dashboard.root)
    assert again.returncode == 0 and "Run nightly is complete: nothing is left to schedule." in again.stdout
    off = rlsift("schedule", "nightly", "--off", "--root", dashboard.root)
    assert off.returncode == 0 and "Run nightly is no longer scheduled." in off.stdout
    assert schedules(dashboard) == {}


def test_each_stage_that_completes_can_start_the_next(dashboard: Dashboard) -> None:
    automations = dashboard.ask("/automations/filter")
    [chained] = [automation for automation in automations if automation["name"] == CHAINED]
    assert not chained["enabled"]
    dashboard.api.patch(f"/automations/{chained['id']}", json={"enabled": True}).raise_for_status()
    dashboard.create_run("stage", {"config": config(dashboard, "chained", 2)})
    wait_until(lambda: ("chained · stage 2/2", "Finished") in stages_run(dashboard, "chained"), "last stage")
    assert stages_run(dashboard, "chained") == [
        ("chained · stage 1/2", "Completed"),
        ("chained · stage 2/2", "Finished"),
    ]
