"""Checkpoints: weights, optimizer, RNG, sampler and carried groups; the marker is written last."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.atomic import new_directory
from pipeline_lib.grpo.backends.base import Backend
from pipeline_lib.grpo.checkpoint_files import checkpoint_path, complete_checkpoints, write_marker


def save_checkpoint(
    directory: Path, step: int, backend: Backend, state: dict[str, Any], keep_last: int, best_step: int | None = None
) -> None:
    """Write `directory/step-NNNNNN` and drop all but the newest `keep_last` complete ones and that of `best_step`.

    Every process calls it and writes its own part. `state` must hold tensors and plain Python values only: it is
    read back with weights_only.
    """
    ranks = backend.ranks
    rng = ranks.gather({"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()})
    with new_directory(checkpoint_path(directory, step)) if ranks.first else nullcontext() as unfinished:
        path: Path = ranks.from_first(unfinished)  # type: ignore[assignment]
        backend.save(path)
        ranks.gather(None)  # until everyone has written
        if ranks.first:
            torch.save(state | {"rng": rng, "step": step}, path / "state.pt")
            write_marker(path)
    if ranks.first:
        for old in complete_checkpoints(directory)[:-keep_last]:
            if best_step is None or old != checkpoint_path(directory, best_step):
                shutil.rmtree(old)
    ranks.gather(None)


def load_checkpoint(path: Path, backend: Backend) -> dict[str, Any]:
    """Give the back end its parameters and optimizer, set the RNGs, and return the state that was saved.

    Raises ValueError where another number of processes cannot take it up.
    """
    backend.load(path)
    state = read_state(path)
    own = state["rng"][backend.ranks.rank % len(state["rng"])]
    torch.set_rng_state(own["cpu"])
    if own["cuda"]:
        torch.cuda.set_rng_state_all(own["cuda"])
    return state


def read_state(path: Path) -> dict[str, Any]:
    """What save_checkpoint was given as `state`, and what it added."""
    state: dict[str, Any] = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    return state
