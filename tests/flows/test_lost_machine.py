"""A machine that is gone takes the worker and the flow run with it: nobody is left to say so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from dashboard_cases import Dashboard, tiny_parameters
from flow_cases import pids_marked, rows, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc"),
]


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path)
    try:
        dashboard.wait()
        yield dashboard
    finally:
        dashboard.end()


def machine_of(dashboard: Dashboard, run: str) -> list[int]:
    """The worker of the pool gpu, the flow run and its training process."""
    marked = pids_marked(dashboard.mark)
    flow_runs = [pid for pid in marked if run in Path(f"/proc/{pid}/environ").read_text(errors="replace")]
    workers = [pid for pid, line in marked.items() if "worker start" in line and "--pool gpu" in line]
    assert flow_runs and workers
    return flow_runs + workers


def test_a_run_on_a_lost_machine_is_crashed_then_goes_on_by_itself(dashboard: Dashboard) -> None:
    parameters = tiny_parameters(dashboard.root)
    parameters["config"]["train"] |= {"steps": 40, "checkpoint_every": 1}
    run = dashboard.create_run("curriculum", parameters, tags=["autoretry"])
    wait_until(lambda: any(dashboard.root.glob("stages/tiny/1-*/checkpoints/step-*")), "checkpoint")
    stage = dashboard.child(run, "tiny · stage 1/1")
    for pid in machine_of(dashboard, stage):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: dashboard.run(stage)["state_name"] != "Running", "notice of the loss")
    print(f"noticed within {time.monotonic() - killed:.0f} s")
    dashboard.wait_for(stage, "Finished", attempt=2)
    dashboard.wait_for(run, "Completed")
    steps = "SELECT count(*) AS n, count(DISTINCT step) AS steps FROM train_steps"
    [counted] = rows(dashboard.root, steps)
    assert counted["n"] == counted["steps"] > 1
    attempts = rows(dashboard.root, "SELECT attempts FROM run_progress WHERE name = 'train'")
    assert attempts == [{"attempts": 2}]
