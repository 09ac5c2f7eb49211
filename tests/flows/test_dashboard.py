"""The dashboard as its users have it: a run from its form, a refusal, a Retry, a stop, a kill."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_cases import RETRY, Dashboard, tiny_parameters
from flow_cases import PATIENCE, pids_marked, processes_marked, rlsift, rows, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc"),
]
BEFORE_TRAINING = [
    "policy",
    "ingest",
    "rollouts train",
    "rollouts validation",
    "evaluate",
    "score",
    "select",
    "diagnose",
]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path_factory.mktemp("dashboard"))
    try:
        dashboard.wait()
        yield dashboard
    finally:
        dashboard.end()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Dashboard]]:
    started: list[Dashboard] = []

    def start() -> Dashboard:
        started.append(Dashboard(tmp_path))
        started[-1].wait()
        return started[-1]

    yield start
    for dashboard in started:
        dashboard.end()


def registered(dashboard: Dashboard) -> tuple[list[str], list[str], dict[str, int]]:
    deployments = dashboard.ask("/deployments/filter")
    automations = dashboard.ask("/automations/filter")
    pools = dashboard.ask("/work_pools/filter")
    return (
        sorted(d["name"] for d in deployments),
        sorted(a["name"] for a in automations),
        {pool["name"]: pool["concurrency_limit"] for pool in pools},
    )


def test_a_second_dashboard_says_where_the_first_is_and_starts_nothing(dashboard: Dashboard) -> None:
    before = pids_marked(dashboard.mark).keys()  # ids, as a worker that starts changes its command line
    second = rlsift("dashboard", "--root", dashboard.root)
    assert second.returncode == 0 and dashboard.url in second.stdout
    assert pids_marked(dashboard.mark).keys() == before


def test_a_port_in_use_is_refused_in_words(dashboard: Dashboard, tmp_path: Path) -> None:
    port = dashboard.url.rpartition(":")[2]
    refused = rlsift("dashboard", "--root", tmp_path, "--port", port)
    assert refused.returncode == 2 and f"--port {port}: another program uses it" in refused.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stages": 0}, "'config.stages'. Failure reason: 0 is less than the minimum of 1"),
        ({"stages": "two"}, "'config.stages'. Failure reason: 'two' is not of type 'integer'"),
        ({"steps": 3}, "'config'. Failure reason: Additional properties are not allowed ('steps' was unexpected)"),
        ({"name": "no spaces please"}, "'config.name'. Failure reason: 'no spaces please' does not match"),
        ({"train": {"learning_rate": -1}}, "'config.train.learning_rate'. Failure reason: -1 is"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_impossible_value_is_refused_by_the_form(dashboard: Dashboard, changed: dict[str, Any], said: str) -> None:
    parameters = tiny_parameters(dashboard.root, **changed)
    path = f"/deployments/{dashboard.deployment('curriculum')}/create_flow_run"
    answer = dashboard.api.post(path, json={"parameters": parameters})
    assert answer.status_code == 409
    assert said in answer.json()["detail"]


def test_a_failed_stage_is_retried_and_the_finished_steps_are_cached(dashboard: Dashboard) -> None:
    dashboard.root.joinpath("stages").write_text("in the way of the training stage's directory")
    run = dashboard.create_run("curriculum", tiny_parameters(dashboard.root))
    dashboard.wait_for(run, "Failed")
    wait_until(lambda: ("train", "Failed") in dashboard.task_states(), "row of the failed task")
    dashboard.root.joinpath("stages").unlink()
    before = len(dashboard.task_states())
    answer = dashboard.ask(f"/flow_runs/{run}/set_state", RETRY)
    assert answer["status"] == "ACCEPT"
    dashboard.wait_for(run, "Completed", attempt=2)
    wait_until(lambda: ("report", "Completed") in dashboard.task_states(), "row of the last task")
    again = dashboard.task_states()[before:]
    for step in BEFORE_TRAINING:
        assert (step, "Cached") in again and (step, "Completed") not in again[: again.index((step, "Cached"))]
    assert ("train", "Completed") in again
    attempts = {r["name"]: r["attempts"] for r in rows(dashboard.root, "SELECT name, attempts FROM run_progress")}
    assert attempts.pop("train") == 2 and set(attempts.values()) == {1}
    assert any("begins" in sentence for sentence in dashboard.sentences(run))


def test_a_stopped_dashboard_says_what_was_running_and_its_successor_resumes_it(
    start: Callable[[], Dashboard],
) -> None:
    first = start()
    known = registered(first)
    names, automations, pools = known
    assert names == ["curriculum", "evaluate", "report", "rollouts", "stage"]
    assert len(automations) == 3 and pools == {"cpu": 2, "gpu": 1}
    long = tiny_parameters(first.root)
    long["config"]["train"]["steps"] = 400
    run = first.create_run("curriculum", long)
    wait_until(lambda: any(first.root.glob("stages/tiny/1-*/records/step-*")), "training step")
    first.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert first.process.wait(PATIENCE) == 0, first.said()
    print(f"stopped within {time.monotonic() - began:.1f} s")
    assert first.left() == []
    for stopped in ("tiny", "tiny · stage 1/1"):
        assert f"{stopped} was Running; it is stopped, and Retry on its page goes on with it." in first.said()
    assert "Traceback" not in first.said()

    second = start()
    assert registered(second) == known
    assert second.run(run)["state_name"] == "Crashed"
    assert rows(second.root, "SELECT error FROM run_progress WHERE name = 'train'") == [{"error": "interrupted"}]
    second.process.kill()
    second.process.wait()
    wait_until(lambda: processes_marked(second.mark) == [], "end of the killed dashboard's processes")

    third = start()
    assert "this one takes its place" in third.said()
    assert registered(third) == known
    third.ask(f"/flow_runs/{run}/set_state", RETRY)
    third.wait_for(run, "Running", attempt=2)
    stage = third.child(run, "tiny · stage 1/1")
    third.wait_for(stage, "Running", attempt=2)
