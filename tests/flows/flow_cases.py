"""The command line in processes of its own, on a curriculum small enough for a test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli import app
from warehouse import Warehouse

TINY = """\
name: tiny
root: root
seed: 3
device: cpu
stages: 2
prompts:
  train: [{type: chains, kinds: [plus, minus, mixed, times], lengths: [3, 4], count: 40, seed: 1}]
  validation:
    minus: [{type: chains, kinds: [minus], lengths: [3, 4], count: 6, seed: 101}]
    # The same source as a share of the pool: what is held out must leave the pool.
    shared: [{type: chains, kinds: [plus], lengths: [3], count: 2, seed: 1}]
  evaluation:
    targeted: [{type: chains, kinds: [minus, mixed], lengths: [3, 4], count: 8, seed: 201}]
    untargeted: [{type: chains, kinds: [times], lengths: [3], count: 6, seed: 202}]
generation: {temperature: 1.0, max_tokens: 30, max_prompt_tokens: 32, batch_size: 256}
offline: {samples: 4, validation_samples: 8, prompts_per_shard: 16}
selection: {type: influence, alpha: 0.4}
train:
  steps: 3
  prompts_per_step: 4
  group_size: 4
  learning_rate: 5.0e-4
  checkpoint_every: 2
  refill: {min_prompts: 2}
evaluation: {samples: 2, pass_at: [1, 2]}
"""
PATIENCE = 600.0
TIMES = "step_time, rollout_time, verify_time, logprob_time, update_time"
"""The columns of train_steps in which no two runs agree."""


def write_config(directory: Path, text: str = TINY) -> Path:
    path = directory / "tiny.yaml"
    path.write_text(text)
    return path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "RLSIFT"))}
    return kept | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"} | more


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "flows.cli", *map(str, args)]


def rlsift(*args: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args), env=environment(**env), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE
    )


def rows(root: Path, sql: str, parameters: Any = None) -> list[dict[str, Any]]:
    return Warehouse(root).snapshot_query(sql, parameters).to_pylist()


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, f"no {what} after {PATIENCE} s"
        time.sleep(0.02)


def pids_marked(mark: str) -> dict[int, str]:
    """Processes that have `mark` in their environment, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # gone meanwhile, or somebody else's
                continue
    return found


def processes_marked(mark: str) -> list[str]:
    """Command lines of the processes that have `mark` in their environment."""
    return list(pids_marked(mark).values())


def in_this_process(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command that has little to do. An exception that it lets out fails the test."""
    with pytest.raises(SystemExit) as ended:
        app([str(arg) for arg in args])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err
