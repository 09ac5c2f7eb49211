"""A run that is stopped in the middle of training goes on from there and ends in the same policy."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flow_cases import TIMES, TINY, command, environment, processes_marked, rlsift, rows, wait_until, write_config

from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.record_files import finished_steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc"),
]

ONE_STAGE = TINY.replace("stages: 2", "stages: 1").replace("steps: 3", "steps: 16")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = write_config(tmp_path_factory.mktemp("undisturbed"), ONE_STAGE)
    answer = rlsift("run", config)
    assert answer.returncode == 0, answer.stderr
    return config.parent / "root"


def final_policy(root: Path) -> str:
    sql = "SELECT outputs->>'policy_id' AS id FROM run_progress JOIN steps USING (fingerprint) WHERE run_progress.name"
    return rows(root, sql + " = 'train' AND run_progress.status = 'completed'")[0]["id"]


def step_of(root: Path, name: str) -> dict[str, Any]:
    return rows(root, "SELECT * FROM run_progress WHERE name = $1", [name])[0]


def training_directory(root: Path) -> Path | None:
    return next(iter(root.glob("stages/tiny/1-*")), None)


class Run:
    """`rlsift run` in a session of its own, as a terminal starts it."""

    def __init__(self, directory: Path) -> None:
        self.config = write_config(directory, ONE_STAGE)
        self.root = directory / "root"
        self.mark = f"RLSIFT_TEST_MARK={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.log = directory / "stderr"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command("run", self.config),
                env=environment() | {name: value},
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_step(self, step: int) -> Path:
        def reached() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            directory = training_directory(self.root)
            return directory is not None and step in finished_steps(directory / "records")

        wait_until(reached, f"step {step}")
        directory = training_directory(self.root)
        assert directory is not None
        return directory

    def left(self) -> list[str]:
        return processes_marked(self.mark)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    # Where the test failed half-way.
    for end in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(run.process.pid, end)
        except ProcessLookupError:
            break
        time.sleep(1)


def times_of_records(directory: Path, up_to: int) -> dict[int, int]:
    steps = [step for step in finished_steps(directory / "records") if step <= up_to]
    return {step: (directory / f"records/step-{step:06d}/train_steps.parquet").stat().st_mtime_ns for step in steps}


def last_checkpoint(directory: Path) -> int:
    checkpoints = complete_checkpoints(directory / "checkpoints")
    return int(checkpoints[-1].name.removeprefix("step-"))


def assert_it_goes_on(run: Run, directory: Path, undisturbed: Path) -> None:
    """Run again: nothing before the last checkpoint is redone, and the end is that of the undisturbed run."""
    checkpoint = last_checkpoint(directory)
    kept = times_of_records(directory, checkpoint)
    assert list(kept) == list(range(1, checkpoint + 1)) and checkpoint >= 2
    again = rlsift("run", run.config)
    assert again.returncode == 0, again.stderr
    assert times_of_records(directory, checkpoint) == kept
    assert final_policy(run.root) == final_policy(undisturbed)
    steps = rows(run.root, "SELECT name, stage, status, attempts, error FROM run_progress")
    assert {(row["status"], row["error"]) for row in steps} == {("completed", None)}
    assert {(row["name"], row["attempts"]) for row in steps if row["attempts"] != 1} == {("train", 2)}
    metrics = f"SELECT * EXCLUDE (fingerprint, {TIMES}) FROM train_steps ORDER BY step"
    assert rows(run.root, metrics) == rows(undisturbed, metrics)
    decisions = "SELECT * FROM sampler_decisions ORDER BY step, position"
    assert [d | {"fingerprint": ""} for d in rows(run.root, decisions)] == [
        d | {"fingerprint": ""} for d in rows(undisturbed, decisions)
    ]


@pytest.mark.parametrize(
    ("how", "to_group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["Ctrl-C in the terminal", "SIGTERM to the process"],
)
def test_a_stopped_run_ends_soon_and_goes_on(run: Run, undisturbed: Path, how: signal.Signals, to_group: bool) -> None:
    directory = run.wait_for_step(3)
    started = time.monotonic()
    if to_group:
        os.killpg(run.process.pid, how)
    else:
        run.process.send_signal(how)
    assert run.process.wait(240) == 130, run.log.read_text()
    print(f"stopped within {time.monotonic() - started:.1f} s")
    assert run.left() == []
    said = run.log.read_text()
    assert "The same command goes on from here." in said and "Traceback" not in said
    train = step_of(run.root, "train")
    assert (train["status"], train["error"]) == ("failed", "interrupted")
    assert rows(run.root, "SELECT status FROM runs") == [{"status": "failed"}]
    assert_it_goes_on(run, directory, undisturbed)


def test_a_killed_run_goes_on(run: Run, undisturbed: Path) -> None:
    directory = run.wait_for_step(3)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: run.left() == [], "end of its training process and its server")
    assert step_of(run.root, "train")["status"] == "running"
    assert_it_goes_on(run, directory, undisturbed)


def test_another_number_of_steps_reuses_what_came_before_training(undisturbed: Path) -> None:
    before = final_policy(undisturbed)
    config = undisturbed.parent / "tiny.yaml"
    changed = rlsift("run", config, "--set", "train.steps=2")
    assert changed.returncode == 0, changed.stderr
    steps = rows(undisturbed, "SELECT name, stage, attempts FROM run_progress")
    assert {row["attempts"] for row in steps} == {1}
    trained = "SELECT step FROM train_steps JOIN run_steps USING (fingerprint) ORDER BY step"
    assert [row["step"] for row in rows(undisturbed, trained)] == [1, 2]
    assert final_policy(undisturbed) != before
    # The dashboard shows what was found in the warehouse as such.
    with closing(sqlite3.connect(undisturbed / "prefect" / "prefect.db")) as database:
        states = database.execute(
            "SELECT name, state_name FROM task_run WHERE flow_run_id IN "
            "(SELECT flow_run_id FROM task_run WHERE name LIKE 'stage 0%') ORDER BY start_time"
        ).fetchall()
    cached = [name for name, state in states if state == "Cached"]
    assert [name.rpartition(" · ")[2] for name in cached] == [
        "policy",
        "ingest",
        "rollouts train",
        "rollouts validation",
        "evaluate",
    ]
    again = rlsift("run", config)  # and back: the first result is still remembered
    assert again.returncode == 0
    assert final_policy(undisturbed) == before
    assert {row["attempts"] for row in rows(undisturbed, "SELECT attempts FROM steps WHERE name <> 'report'")} == {1}
