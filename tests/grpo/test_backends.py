"""Back ends and numbers of processes follow one torch process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import updates

from pipeline_lib.config import Backend, DapoLoss, DeepSpeedBackend, GspoLoss, Lora, Loss, TorchBackend, Train
from pipeline_lib.grpo.worker import ON_THIS_MACHINE

ROOT = Path(__file__).parents[2]
Outcome = dict[str, Any]


def train_on(backend: Backend, loss: Loss | None = None, lora: Lora | None = None) -> Train:
    return Train(
        loss=loss or DapoLoss(kl_coefficient=0.1),
        lora=lora,
        backend=backend,
        tokens_per_micro_batch=40,
        max_grad_norm=0.5,
    )


def run_updates(output: Path, train: Train) -> Outcome:
    result = attempt_updates(output, train)
    assert result.returncode == 0, result.stderr[-3000:]
    outcome: Outcome = json.loads(output.read_text())
    return outcome


def attempt_updates(output: Path, train: Train) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", *ON_THIS_MACHINE]
    command += [f"--nproc-per-node={train.backend.processes}", updates.__file__, str(output), train.model_dump_json()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)


def in_this_process(output: Path, train: Train) -> Outcome:
    argv, sys.argv = sys.argv, ["updates.py", str(output), train.model_dump_json()]
    try:
        updates.main()
    finally:
        sys.argv = argv
    outcome: Outcome = json.loads(output.read_text())
    return outcome


def assert_same_curve(outcome: Outcome, expected: Outcome) -> None:
    steps, wanted = (torch.tensor(o["steps"], dtype=torch.float64) for o in (outcome, expected))
    assert len(wanted) == updates.STEPS
    assert wanted[:, 0].abs().max() > 1e-3 and wanted[-1, 2] > 0.005  # there is a loss, and the policy moves
    torch.testing.assert_close(steps[0, :2], wanted[0, :2], rtol=1e-6, atol=0)  # loss and gradient of one batch
    torch.testing.assert_close(steps, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.tensor(outcome["parameters"]), torch.tensor(expected["parameters"]), **WEIGHTS)


WEIGHTS = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("loss", [DapoLoss(kl_coefficient=0.1), GspoLoss(kl_coefficient=0.1)], ids=["dapo", "gspo"])
def test_two_processes_follow_one(tmp_path: Path, loss: Loss) -> None:
    expected = in_this_process(tmp_path / "one.json", train_on(TorchBackend(), loss))
    outcome = run_updates(tmp_path / "two.json", train_on(TorchBackend(processes=2), loss))
    assert_same_curve(outcome, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zero_stage", "lora"), [(0, None), (1, None), (2, None), (3, None), (2, Lora(rank=4)), (3, Lora(rank=4))]
)
def test_zero_on_two_processes_follows_one_torch_process(tmp_path: Path, zero_stage: int, lora: Lora | None) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    expected = in_this_process(tmp_path / "torch.json", train_on(TorchBackend(), lora=lora))
    backend = DeepSpeedBackend(processes=2, zero_stage=zero_stage)
    outcome = run_updates(tmp_path / "zero.json", train_on(backend, lora=lora))
    assert_same_curve(outcome, expected)


@pytest.mark.slow
@pytest.mark.parametrize("zero_stage", [2, 3])
def test_zero_goes_on_from_its_checkpoint_and_refuses_another_number_of_processes(
    tmp_path: Path, zero_stage: int
) -> None:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    train = train_on(DeepSpeedBackend(processes=2, zero_stage=zero_stage))
    whole = run_updates(tmp_path / "zero.json", train)
    resumed = run_updates(tmp_path / "zero.json", train)
    assert resumed["steps"] == whole["steps"][5:]
    assert resumed["parameters"] == whole["parameters"]
    alone = attempt_updates(tmp_path / "zero.json", train_on(DeepSpeedBackend(zero_stage=zero_stage)))
    assert alone.returncode != 0
    assert "'processes': 2" in alone.stderr and "train the stage again" in alone.stderr


def test_torch_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    whole = in_this_process(tmp_path / "one.json", train_on(TorchBackend()))
    resumed = run_updates(tmp_path / "one.json", train_on(TorchBackend(processes=2)))
    torch.testing.assert_close(torch.tensor(resumed["steps"]), torch.tensor(whole["steps"][5:]), rtol=1e-4, atol=1e-4)
