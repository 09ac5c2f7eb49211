"""Checkpoints: weights, optimizer, RNG, sampler and carried groups; the marker is written last."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model

from pipeline_lib.atomic import fsync_path, new_directory, write_text
from pipeline_lib.policy import Policy

MARKER = "COMPLETE.json"


def save_checkpoint(directory: Path, step: int, policy: Policy, state: dict[str, Any], keep_last: int) -> None:
    """Write `directory/step-NNNNNN` and drop all but the newest `keep_last` complete ones.

    `state` must hold tensors and plain Python values only: it is read back with weights_only.
    """
    rng = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
    with new_directory(directory / f"step-{step:06d}") as path:
        save_model(policy.model, str(path / "model.safetensors"))
        torch.save(state | {"rng": rng, "step": step}, path / "state.pt")
        checksums = {file.name: _sha256(file) for file in sorted(path.iterdir())}
        for file in path.iterdir():
            fsync_path(file)
        write_text(path / MARKER, json.dumps(checksums))
    for old in complete_checkpoints(directory)[:-keep_last]:
        shutil.rmtree(old)


def complete_checkpoints(directory: Path) -> list[Path]:
    """Checkpoints whose marker is there and whose files have the recorded checksums, oldest first."""
    return [path for path in sorted(directory.glob("step-*")) if _is_complete(path)]


def load_checkpoint(path: Path, policy: Policy) -> dict[str, Any]:
    """Load the weights into `policy`, set the RNGs, and return the state that was saved."""
    load_model(policy.model, str(path / "model.safetensors"), device=str(policy.device))
    state: dict[str, Any] = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    torch.set_rng_state(state["rng"]["cpu"])
    if state["rng"]["cuda"]:
        torch.cuda.set_rng_state_all(state["rng"]["cuda"])
    return state


def _is_complete(path: Path) -> bool:
    marker = path / MARKER
    if not marker.exists():
        return False
    try:
        checksums: dict[str, str] = json.loads(marker.read_bytes())
    except ValueError:  # a torn marker
        return False
    return all((path / n).exists() and _sha256(path / n) == digest for n, digest in checksums.items())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
