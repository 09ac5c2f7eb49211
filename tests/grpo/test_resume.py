"""A stage that is killed and started again ends in the same bytes as one that was never stopped."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from grpo_cases import chain_prompts, write_training_job
from worker_cases import PATIENCE, alive, needs_proc, run_to_the_end, start, wait_until

from pipeline_lib.config import DapoLoss, GresoSampler, Refill, Train
from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.job import read_result
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.grpo.stage import run_job
from pipeline_lib.records import Prompt
from pipeline_lib.sampling import Observation

TIMES = ("step_time", "rollout_time", "verify_time", "logprob_time", "update_time")
CONFIG = Train(
    steps=9,
    prompts_per_step=4,
    group_size=4,
    learning_rate=1e-3,
    warmup_steps=3,
    checkpoint_every=3,
    refill=Refill(max_rounds=3),
    loss=DapoLoss(kl_coefficient=0.01),
)


def prompts() -> list[Prompt]:
    """Chains on which the built-in policy is of two minds."""
    return chain_prompts(16)


def kill_in_step(directory: Path, step: int, delay: float) -> None:
    """Let the worker go on until the records of `step` are there, and kill it a little later."""
    worker = start(directory)
    try:
        wait_until(lambda: step in finished_steps(directory / "records") or worker.poll() is not None, "records")
        time.sleep(delay)
        assert worker.poll() is None, "the worker ended before it was killed"
    finally:
        worker.kill()
        worker.wait()


def records(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Every record of a stage by file, times aside."""
    return {
        str(file.relative_to(directory)): [
            {name: value for name, value in row.items() if name not in TIMES} for row in pq.read_table(file).to_pylist()
        ]
        for file in sorted((directory / "records").glob("step-*/*.parquet"))
    }


def assert_same_end(directory: Path, undisturbed: Path) -> None:
    ends = [complete_checkpoints(d / "checkpoints")[-1] for d in (directory, undisturbed)]
    assert ends[0].name == ends[1].name
    assert (ends[0] / "model.safetensors").read_bytes() == (ends[1] / "model.safetensors").read_bytes()
    results = [read_result(d) for d in (directory, undisturbed)]
    assert results[0] is not None and results[1] is not None
    assert results[0].policy_id == results[1].policy_id
    assert results[0].steps == results[1].steps
    weights = [(Path(r.policy_path) / "model.safetensors").read_bytes() for r in results]
    assert weights[0] == weights[1]
    assert records(directory) == records(undisturbed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_training_job(tmp_path_factory.mktemp("undisturbed") / "stage", CONFIG, prompts())
    run_to_the_end(directory)
    return directory


def test_the_undisturbed_stage_has_learned_something(undisturbed: Path) -> None:
    """Else the tests below compare nothing with nothing."""
    assert finished_steps(undisturbed / "records") == list(range(1, 10))
    steps = [row for name, rows in records(undisturbed).items() if "train_steps" in name for row in rows]
    assert sum(row["grad_norm"] > 0 for row in steps) >= 7
    assert any(row["groups_carried"] for row in steps)
    assert any(row["prompts_skipped"] for row in steps)
    assert max(row["sampling_logp_difference_max"] or 0 for row in steps) > 0.01
    result = read_result(undisturbed)
    assert result is not None and result.steps == 9 and result.ended_early is None
    assert [p.name for p in complete_checkpoints(undisturbed / "checkpoints")] == ["step-000006", "step-000009"]


def test_killed_three_times_it_ends_in_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    rng = random.Random(2026)
    directory = write_training_job(tmp_path / "stage", CONFIG, prompts())
    for step in (rng.randint(1, 2), rng.randint(4, 5), rng.randint(7, 8)):
        kill_in_step(directory, step, rng.uniform(0, 0.1))
        assert read_result(directory) is None
    run_to_the_end(directory)
    assert_same_end(directory, undisturbed)


def test_the_last_checkpoint_torn_it_goes_on_from_the_one_before(undisturbed: Path, tmp_path: Path) -> None:
    directory = tmp_path / "stage"
    shutil.copytree(undisturbed, directory)
    (directory / "result.json").unlink()
    torn = directory / "checkpoints" / "step-000009" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:5000])
    redone = before(directory, "step-000007")
    result = run_job(directory, lambda: None)
    assert result.steps == 9
    assert before(directory, "step-000007") > redone  # steps 7 to 9 were done once more
    assert before(directory, "step-000006") == before(undisturbed, "step-000006")
    assert_same_end(directory, undisturbed)


def test_what_an_abandoned_attempt_left_beyond_its_checkpoint_is_gone(undisturbed: Path, tmp_path: Path) -> None:
    """Also where the new attempt comes to fewer steps, as another number of processes may."""
    directory = tmp_path / "stage"
    shutil.copytree(undisturbed, directory)
    (directory / "result.json").unlink()
    shutil.rmtree(directory / "checkpoints" / "step-000009")
    for left in ("step-000010", ".step-000011.x.tmp"):
        shutil.copytree(directory / "records" / "step-000009", directory / "records" / left)
    half_saved = tmp_path / "policies" / ".unnamed-1"
    shutil.copytree(directory / "checkpoints" / "step-000006", half_saved)
    job = json.loads((directory / "job.json").read_text())
    (directory / "job.json").write_text(json.dumps(job | {"policies_dir": str(half_saved.parent)}))
    run_job(directory, lambda: None)
    assert sorted(path.name for path in (directory / "records").iterdir()) == [f"step-{n:06d}" for n in range(1, 10)]
    assert_same_end(directory, undisturbed)
    result = read_result(directory)
    assert result is not None
    assert {path.name for path in half_saved.parent.iterdir()} == {".lock", result.policy_id}


def before(directory: Path, step: str) -> int:
    return (directory / "records" / step / "train_steps.parquet").stat().st_mtime_ns


def test_killed_after_the_last_checkpoint_it_trains_no_more(undisturbed: Path, tmp_path: Path) -> None:
    directory = tmp_path / "stage"
    shutil.copytree(undisturbed, directory)
    (directory / "result.json").unlink()
    result = run_job(directory, lambda: pytest.fail("another step was begun"))
    assert result == read_result(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_it_ends_in_the_same_bytes(undisturbed: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directory = write_training_job(tmp_path / "stage", CONFIG, prompts())
    for _ in range(4):
        worker = start(directory)
        before_kill = time.monotonic() + rng.uniform(0.5, 9.0)
        while worker.poll() is None and time.monotonic() < before_kill:
            time.sleep(0.01)
        worker.kill()
        worker.wait()
    run_to_the_end(directory)
    assert_same_end(directory, undisturbed)


# --- ending early ---------------------------------------------------------------------------------------


@pytest.fixture
def nothing_to_learn(tmp_path: Path) -> Path:
    """Every prompt has so long a zero-variance history that the sampler skips it."""
    pool = prompts()[:6]
    history = [Observation(p.prompt_id, 4, 4, False) for p in pool for _ in range(60)]
    sampler = GresoSampler(exploration=1e-15)
    config = CONFIG.model_copy(update={"steps": 50, "sampler": sampler, "loss": DapoLoss()})
    return write_training_job(tmp_path / "stage", config, pool, history)


def test_a_stage_with_nothing_left_to_learn_ends_early_and_says_why(nothing_to_learn: Path) -> None:
    result = run_job(nothing_to_learn, lambda: None)
    assert result.steps == 2
    assert result.ended_early is not None
    assert "nothing left to learn at step 2: of 6 prompts 6 were skipped" in result.ended_early
    assert read_result(nothing_to_learn) == result
    steps = [row for name, rows in records(nothing_to_learn).items() if "train_steps" in name for row in rows]
    assert [row["groups_trained"] for row in steps] == [0, 0]
    assert [row["prompts_skipped"] for row in steps] == [6, 6]


@pytest.mark.parametrize("lost", [["result.json"], ["result.json", "../policies"]], ids=["result", "policy too"])
def test_after_an_early_end_re_entry_trains_no_more(nothing_to_learn: Path, lost: list[str]) -> None:
    first = run_job(nothing_to_learn, lambda: None)
    for name in lost:
        path = nothing_to_learn / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    second = run_job(nothing_to_learn, lambda: pytest.fail("another step was begun"))
    assert second == first
    assert finished_steps(nothing_to_learn / "records") == [1, 2]


# --- a launcher that dies -------------------------------------------------------------------------------

LAUNCHER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-m", "pipeline_lib.grpo.worker", sys.argv[1]],
                          stdout=open(sys.argv[1] + "/worker.log", "ab"), stderr=subprocess.STDOUT)
print(worker.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[tuple[Path, int, subprocess.Popen[str]]]:
    """A stage directory, the worker's process id, and its launcher."""
    config = CONFIG.model_copy(update={"steps": 2000})
    directory = write_training_job(tmp_path / "stage", config, prompts())
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    worker = int(launcher.stdout.readline())
    yield directory, worker, launcher
    launcher.kill()
    launcher.wait()
    if alive(worker):
        os.kill(worker, signal.SIGKILL)


@needs_proc
@pytest.mark.parametrize("moment", ["while it imports torch", pytest.param("in its steps", marks=pytest.mark.slow)])
def test_the_worker_stops_when_its_launcher_dies(orphan: tuple[Path, int, subprocess.Popen[str]], moment: str) -> None:
    directory, worker, launcher = orphan
    if moment == "in its steps":
        wait_until(lambda: bool(finished_steps(directory / "records")), "first step")
    else:
        wait_until(lambda: "libtorch" in Path(f"/proc/{worker}/maps").read_text(), "torch")
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not alive(worker), "end of the worker")
    assert "the process that launched this worker is gone" in (directory / "worker.log").read_text()
    done = finished_steps(directory / "records")
    assert done == [] if moment == "while it imports torch" else len(done) < 100
    assert json.loads((directory / "job.json").read_text())["train"]["steps"] == 2000
    assert read_result(directory) is None


@pytest.mark.slow
def test_two_workers_in_one_directory_take_turns(undisturbed: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"steps": 2, "checkpoint_every": 1})
    directory = write_training_job(tmp_path / "stage", config, prompts())
    first, second = start(directory), start(directory)
    assert (first.wait(PATIENCE), second.wait(PATIENCE)) == (0, 0)
    once = records(directory)
    assert once["records/step-000001/rollouts.parquet"] == records(undisturbed)["records/step-000001/rollouts.parquet"]
