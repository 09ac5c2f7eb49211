"""A stage on two processes: to its end, with a process killed, with its launcher gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from grpo_cases import chain_prompts, tiny_policy, write_training_job
from worker_cases import PATIENCE, alive, needs_proc, run_to_the_end, start, wait_until

from pipeline_lib.config import Backend, DapoLoss, DeepSpeedBackend, Lora, TorchBackend, Train
from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.job import read_result
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.grpo.worker import ERROR
from pipeline_lib.policy import load_policy
from pipeline_lib.rollout import read_groups

BACKENDS: dict[str, tuple[Backend, Lora | None]] = {
    "zero 1, alone": (DeepSpeedBackend(zero_stage=1), None),
    "torch": (TorchBackend(processes=2), None),
    "torch, adapters": (TorchBackend(processes=2), Lora(rank=2)),
    "zero 2": (DeepSpeedBackend(processes=2, zero_stage=2), None),
    "zero 3": (DeepSpeedBackend(processes=2, zero_stage=3), None),
    "zero 3, adapters": (DeepSpeedBackend(processes=2, zero_stage=3), Lora(rank=2)),
}


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def stage_of(directory: Path, name: str, steps: int) -> Path:
    backend, lora = BACKENDS[name]
    train = Train(
        steps=steps,
        prompts_per_step=3,  # an odd number over two processes
        group_size=4,
        learning_rate=1e-3,
        tokens_per_micro_batch=200,
        loss=DapoLoss(kl_coefficient=0.01),
        backend=backend,
        lora=lora,
        checkpoint_every=2,
    )
    return write_training_job(directory, train, chain_prompts(9))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stage_ends_in_one_whole_policy_and_goes_on_where_it_stopped(tmp_path: Path, backend: str) -> None:
    if backend.startswith("zero"):
        pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    directory = stage_of(tmp_path / "stage", backend, 3)
    run_to_the_end(directory)
    result = read_result(directory)
    assert result is not None and result.steps == 3
    trained = load_policy(result.policy_path, device=torch.device("cpu"), dtype=torch.float32)
    before, after = tiny_policy().model.state_dict(), trained.model.state_dict()
    assert before.keys() == after.keys()
    assert 0 < max(float((after[name] - before[name]).abs().max()) for name in after) < 0.02
    assert finished_steps(directory / "records") == [1, 2, 3]
    carried = 0
    for step in (1, 2, 3):
        records = directory / "records" / f"step-{step:06d}"
        row = pq.read_table(records / "train_steps.parquet").to_pylist()[0]
        groups = read_groups(records / "rollouts.parquet")
        assert row["rollouts"] == sum(len(g.trajectories) for g in groups) == 4 * len({g.prompt_id for g in groups})
        # The policy that samples is the one that is trained; only what is carried over was sampled before.
        assert row["sampling_logp_difference_max"] < 1e-3 or carried > 0
        carried = row["groups_carried"]
    # Without its end it goes on from the last checkpoint, and ends in the same policy.
    (directory / "result.json").unlink()
    assert [path.name for path in complete_checkpoints(directory / "checkpoints")] == ["step-000002", "step-000003"]
    run_to_the_end(directory)
    assert read_result(directory) == result


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def ranks_of(worker: int) -> list[int]:
    """The training processes below a worker, not its verifiers' nor the launcher's helpers."""
    return [pid for pid in children(worker) if b"pipeline_lib.grpo.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.slow
def test_what_a_process_said_before_it_ended_is_told(tmp_path: Path) -> None:
    train = Train(backend=TorchBackend(processes=2), lora=Lora(target_modules=["nothing"]))
    directory = write_training_job(tmp_path / "stage", train, chain_prompts(9))
    assert start(directory).wait(PATIENCE) != 0
    assert "Target modules {'nothing'} not found" in (directory / ERROR).read_text()


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "zero 2"])
def test_a_killed_process_ends_the_others_and_the_log_says_so(tmp_path: Path, backend: str) -> None:
    directory = stage_of(tmp_path / "stage", backend, 5000)
    worker = start(directory)
    try:
        wait_until(lambda: bool(finished_steps(directory / "records")) or worker.poll() is not None, "first step")
        ranks = ranks_of(worker.pid)
        assert len(ranks) == 2
        os.kill(ranks[1], signal.SIGKILL)
        assert worker.wait(PATIENCE) != 0
        wait_until(lambda: not any(alive(pid) for pid in ranks), "end of the other process")
    finally:
        worker.kill()
        worker.wait()
    assert "Signal 9 (SIGKILL)" in (directory / "worker.log").read_text()
    assert read_result(directory) is None


LAUNCHER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-m", "pipeline_lib.grpo.worker", sys.argv[1]],
                          stdout=open(sys.argv[1] + "/worker.log", "ab"), stderr=subprocess.STDOUT)
print(worker.pid, flush=True)
time.sleep(1000)
"""


@needs_proc
@pytest.mark.slow
def test_all_processes_stop_when_the_launcher_dies(tmp_path: Path) -> None:
    directory = stage_of(tmp_path / "stage", "torch", 5000)
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    worker = int(launcher.stdout.readline())
    everyone = [worker]
    try:
        wait_until(lambda: bool(finished_steps(directory / "records")), "first step")
        everyone += ranks_of(worker)
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not any(alive(pid) for pid in everyone), f"end of all within {PATIENCE:.0f} s")
    finally:
        launcher.kill()
        launcher.wait()
        for pid in everyone:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert read_result(directory) is None
