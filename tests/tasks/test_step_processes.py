"""Re-entry where several processes are at it, and where one is killed."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from step_cases import FileStep, attempts_of, run_config

from flows.commands.status import print_status
from flows.runs import record_run
from tasks.locks import interrupted_steps, worked_on_by
from tasks.step import perform
from warehouse import Warehouse

SCRIPT = """
import json, logging, sys
from pathlib import Path
from step_cases import FileStep, run_config
from tasks.step import perform
logging.basicConfig(level=logging.INFO, format="%(message)s")
root, output, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
done = perform(FileStep(run_config(root), 1, output=output, seconds=seconds))
print(json.dumps([done.fingerprint, done.outputs, done.cached]), flush=True)
"""


@pytest.fixture
def step(tmp_path: Path) -> FileStep:
    return FileStep(run_config(tmp_path / "root"), 1, output=tmp_path / "output")


def in_another_process(step: FileStep, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(step.root), str(step.output), str(seconds)],
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(process: subprocess.Popen[str]) -> tuple[str, dict[str, Any], bool]:
    """Fingerprint, outputs, and whether they were found."""
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    fingerprint, outputs, cached = json.loads(out)
    return fingerprint, outputs, cached


def wait_for_attempts(step: FileStep, n: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 250
    while len(attempts_of(step)) < n:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def row_of(step: FileStep) -> dict[str, Any]:
    rows = Warehouse(step.root).snapshot_query("SELECT * FROM steps WHERE fingerprint = $1", [step.fingerprint])
    return rows.to_pylist()[0]


def status(step: FileStep, run_id: str | None) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_status(console, Warehouse(step.root), run_id)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_process_works_and_the_other_waits_and_finds_it_done(
    step: FileStep, caplog: pytest.LogCaptureFixture
) -> None:
    worker = in_another_process(step, seconds=2.0)
    wait_for_attempts(step, 1, worker)
    assert worked_on_by(step.root, step.fingerprint) == str(worker.pid)
    with caplog.at_level(logging.INFO, logger="rlsift"):
        done = perform(step)
    assert done.cached
    assert answer_of(worker) == (done.fingerprint, done.outputs, False)
    assert len(attempts_of(step)) == 1
    assert worked_on_by(step.root, step.fingerprint) is None
    waiting = f"stage 1/2 · file step is being worked on by process {worker.pid}; waiting for it to end."
    assert waiting in caplog.messages


def test_two_processes_that_start_together_do_the_work_once_and_end_with_the_same(step: FileStep) -> None:
    answers = [answer_of(process) for process in [in_another_process(step, seconds=1.0) for _ in range(2)]]
    assert sorted(cached for _, _, cached in answers) == [False, True]
    assert {fingerprint for fingerprint, _, _ in answers} == {step.fingerprint}
    assert [outputs for _, outputs, _ in answers] == [{"path": str(step.output)}] * 2
    assert len(attempts_of(step)) == 1
    assert (row_of(step)["status"], row_of(step)["attempts"]) == ("completed", 1)


def test_who_waits_for_a_process_that_is_killed_does_its_work(step: FileStep) -> None:
    worker = in_another_process(step, seconds=60.0)
    wait_for_attempts(step, 1, worker)
    waiting = in_another_process(step, seconds=0.0)
    assert waiting.stderr is not None
    assert f"worked on by process {worker.pid}" in waiting.stderr.readline()
    kill(worker)
    assert answer_of(waiting) == (step.fingerprint, {"path": str(step.output)}, False)
    assert (row_of(step)["status"], row_of(step)["attempts"]) == ("completed", 2)


def test_a_step_whose_process_was_killed_is_told_of_as_interrupted_and_done_again(step: FileStep) -> None:
    record_run(step.run, "running")
    process = in_another_process(step, seconds=60.0)
    wait_for_attempts(step, 1, process)
    for run_id in ("run", None):
        assert "running" in status(step, run_id) and "interrupted" not in status(step, run_id)
    kill(process)
    assert row_of(step)["status"] == "running"
    assert interrupted_steps(Warehouse(step.root)) == [step.fingerprint]
    for run_id in ("run", None):
        table, _, explanation = status(step, run_id).partition("interrupted:")
        assert "interrupted" in table and "running" not in table
        assert "rlsift run" in explanation and "SQL" in explanation
    assert not perform(step).cached
    row = row_of(step)
    assert (row["status"], row["attempts"]) == ("completed", 2)
    assert interrupted_steps(Warehouse(step.root)) == []
    assert "interrupted" not in status(step, "run")
