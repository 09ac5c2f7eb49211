"""Checkpoints: whole or not there, the newest whole one counts, the old ones go."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_cases import group, tiny_policy, torch_training

from pipeline_lib.grpo import checkpoint_files
from pipeline_lib.grpo.backends import TorchTraining
from pipeline_lib.grpo.checkpoint import load_checkpoint, save_checkpoint
from pipeline_lib.grpo.checkpoint_files import MARKER, complete_checkpoints


@pytest.fixture(scope="module")
def backend() -> TorchTraining:
    return torch_training(tiny_policy(seed=3))


def weights(backend: TorchTraining) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in backend.trained.policy.model.state_dict().items()}


def names(directory: Path) -> list[str]:
    return [path.name for path in complete_checkpoints(directory)]


def test_weights_state_and_random_numbers_come_back(tmp_path: Path) -> None:
    backend = torch_training(tiny_policy(seed=3))
    for parameter in backend.trained.policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    backend.apply(1e-3, 1e9)
    state: dict[str, Any] = {
        "sampler": {"runs": {"p1": ["all_right", 3]}, "epoch": 2},
        "carried": [[{"tokens": (1, 2), "reward": None, "logprobs": (-0.5,)}]],
        "share": 0.25,
        "why": None,
    }
    torch.manual_seed(123)
    save_checkpoint(tmp_path, 7, backend, state, keep_last=2)
    drawn = torch.rand(3)
    other = torch_training(tiny_policy(seed=4))
    loaded = load_checkpoint(complete_checkpoints(tmp_path)[-1], other)
    assert torch.equal(torch.rand(3), drawn)
    expected = weights(backend)
    assert all(torch.equal(value, expected[name]) for name, value in weights(other).items())
    assert loaded["step"] == 7
    assert {name: loaded[name] for name in ("sampler", "carried", "share", "why")} == state
    # The optimizers go on alike.
    for training in (backend, other):
        for parameter in training.trained.policy.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        training.apply(1e-3, 1e9)
    expected = weights(backend)
    assert all(torch.equal(value, expected[name]) for name, value in weights(other).items())


def test_the_newest_are_kept(tmp_path: Path, backend: TorchTraining) -> None:
    for step in (2, 4, 6, 8):
        save_checkpoint(tmp_path, step, backend, {}, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000006", "step-000008"]


def test_a_checkpoint_written_again_replaces_the_old_one(tmp_path: Path, backend: TorchTraining) -> None:
    save_checkpoint(tmp_path, 2, backend, {"try": 1}, keep_last=2)
    save_checkpoint(tmp_path, 2, backend, {"try": 2}, keep_last=2)
    assert names(tmp_path) == ["step-000002"]
    assert load_checkpoint(tmp_path / "step-000002", torch_training(tiny_policy()))["try"] == 2


def truncate(name: str) -> Callable[[Path], None]:
    def tear(checkpoint: Path) -> None:
        file = checkpoint / name
        file.write_bytes(file.read_bytes()[:-1])

    return tear


def flip_a_byte(checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


TEARS: dict[str, Callable[[Path], None]] = {
    "truncated weights": truncate("model.safetensors"),
    "truncated state": truncate("state.pt"),
    "truncated marker": truncate(MARKER),
    "empty marker": lambda checkpoint: (checkpoint / MARKER).write_bytes(b"") and None,
    "missing marker": lambda checkpoint: (checkpoint / MARKER).unlink(),
    "missing weights": lambda checkpoint: (checkpoint / "model.safetensors").unlink(),
    "changed weights": flip_a_byte,
}


@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS.keys())
def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, backend: TorchTraining, tear: Callable[[Path], None]) -> None:
    for step in (2, 4):
        save_checkpoint(tmp_path, step, backend, {}, keep_last=3)
    tear(tmp_path / "step-000004")
    assert names(tmp_path) == ["step-000002"]
    # What is written in its place counts again, and a torn one does not push a whole one out.
    save_checkpoint(tmp_path, 6, backend, {}, keep_last=2)
    assert names(tmp_path) == ["step-000002", "step-000006"]
    save_checkpoint(tmp_path, 4, backend, {}, keep_last=3)
    assert names(tmp_path) == ["step-000002", "step-000004", "step-000006"]


def test_a_checkpoint_is_read_once_to_see_that_it_is_whole(
    tmp_path: Path, backend: TorchTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(path: Path) -> str:
        read.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    save_checkpoint(tmp_path, 2, backend, {}, keep_last=2)
    monkeypatch.setattr(checkpoint_files, "_sha256", counted)
    (tmp_path / "step-000002").rename(tmp_path / "step-000004")
    for _ in range(3):
        assert names(tmp_path) == ["step-000004"]
    assert sorted(read) == ["model.safetensors", "optimizer.pt", "state.pt"]
    flip_a_byte(tmp_path / "step-000004")
    assert names(tmp_path) == []
    assert checkpoint_files.torn_checkpoints(tmp_path) == [tmp_path / "step-000004"]


def test_what_a_killed_writer_left_is_not_seen(tmp_path: Path, backend: TorchTraining) -> None:
    save_checkpoint(tmp_path, 2, backend, {}, keep_last=2)
    whole = tmp_path / "step-000002"
    half = tmp_path / ".step-000004.x1y2.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:1000])
    (half / MARKER).write_text(json.dumps({}))
    assert names(tmp_path) == ["step-000002"]


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert complete_checkpoints(tmp_path / "never made") == []


def test_a_failed_write_leaves_nothing(tmp_path: Path, backend: TorchTraining) -> None:
    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(tmp_path, 2, backend, {"bad": lambda: group("p", [1.0])}, keep_last=2)
    assert list(tmp_path.iterdir()) == []
