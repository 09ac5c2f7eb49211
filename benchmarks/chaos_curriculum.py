"""The tiny curriculum that chaos.py disturbs: as it was before each of its steps, and what it comes to undisturbed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flows.chain import finish, places, walk
from flows.runs import record_run
from pipeline_lib.atomic import write_text
from pipeline_lib.config_file import load_config
from tasks.step import Done, Step, perform
from warehouse import Warehouse

CONFIG = """\
name: chaos
root: work/root
seed: 3
device: cpu
stages: 2
prompts:
  train: [{type: chains, kinds: [plus, minus, mixed, times], lengths: [3, 4], count: 40, seed: 1}]
  validation:
    minus: [{type: chains, kinds: [minus], lengths: [3, 4], count: 6, seed: 101}]
  evaluation:
    targeted: [{type: chains, kinds: [minus, mixed], lengths: [3, 4], count: 8, seed: 201}]
generation: {temperature: 1.0, max_tokens: 30, max_prompt_tokens: 32, batch_size: 256}
offline: {samples: 4, validation_samples: 8, prompts_per_shard: 8}
influence: {type: exact}
selection: {type: influence, alpha: 0.4}
train:
  steps: 3
  prompts_per_step: 4
  group_size: 4
  learning_rate: 5.0e-4
  sampler: {type: greso}
  checkpoint_every: 1
  refill: {min_prompts: 2}
evaluation: {samples: 2, pass_at: [1, 2]}
"""
OTHER = ("name=other", "train.learning_rate=4.0e-4")
"""What makes another run of it, which shares all steps up to the first training."""

NOT_COMPARED = {
    "steps": {"attempts", "started_at", "finished_at", "flow_run_id", "task_run_id"},
    "runs": {"created_at", "updated_at"},
    "train_steps": {"step_time", "rollout_time", "verify_time", "update_time", "logprob_time"},
}

Place = tuple[int, str]
"""Stage and name of a step."""


@dataclass(frozen=True)
class Found:
    """How the undisturbed run met a step."""

    fingerprint: str
    label: str
    seconds: float
    grows_by: int
    """Bytes of the root."""


class Curriculum:
    """Everything is under `directory`. Disturbed runs all have the root `directory`/work/root, so that paths agree."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.work = self.directory / "work"
        self.root = self.work / "root"
        self.config = self.directory / "chaos.yaml"
        self._undisturbed = self.directory / "undisturbed.json"

    @property
    def places(self) -> list[Place]:
        return places(load_config(self.config))

    def before(self, place: Place) -> Path:
        """The root as the undisturbed run had it before this step."""
        return self.directory / "before" / f"{place[0]}-{place[1]}"

    def reset(self, place: Place) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.before(place), self.root, symlinks=True)

    def prepare(self) -> None:
        """Run it undisturbed, without Prefect, and keep what it was before each step; once for all faults."""
        if self._undisturbed.exists():
            return
        # As its runs have it: sums over two threads have other last digits.
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)
        for left in (self.work, self.directory / "before"):
            shutil.rmtree(left, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.config.write_text(CONFIG)
        found: dict[str, dict[str, Any]] = {}

        def kept(step: Step) -> Done:
            before = self.before((step.stage, step.name))
            shutil.copytree(self.root, before, symlinks=True)
            done = perform(step)
            times = "SELECT epoch(finished_at) - epoch(started_at) AS s FROM steps WHERE fingerprint = $1"
            seconds = Warehouse(self.root).query(times, [step.fingerprint])["s"][0].as_py()
            grows_by = n_bytes(self.root) - n_bytes(before)
            found[f"{step.stage}-{step.name}"] = vars(Found(step.fingerprint, step.label, seconds, grows_by))
            return done

        self._run((), kept)
        one = {"tables": tables(self.root), "files": files(self.root)}
        self._run(OTHER, perform)
        both = {"tables": tables(self.root), "files": files(self.root)}
        write_text(self._undisturbed, json.dumps({"found": found, "one": one, "both": both}))

    def _run(self, overrides: Sequence[str], do: Any) -> None:
        config = load_config(self.config, list(overrides))
        record_run(config, "running")
        finish(config, *walk(config, do, stages=config.stages), do)
        record_run(config, "completed")

    def keep_failed(self, number: int) -> None:
        """A copy of the root as the fault of this number has left it."""
        kept = self.directory / "failed" / f"{number:04d}"
        shutil.copytree(self.root, kept, symlinks=True, dirs_exist_ok=True)

    def found(self, place: Place) -> Found:
        return Found(**json.loads(self._undisturbed.read_text())["found"][f"{place[0]}-{place[1]}"])

    def differences(self, *, both: bool) -> list[str]:
        """What the root has otherwise than the undisturbed run: tables by their rows, files by their bytes."""
        expected = json.loads(self._undisturbed.read_text())["both" if both else "one"]
        now = tables(self.root)
        assert now.keys() == expected["tables"].keys()
        differ = [f"table {name}" for name, rows in expected["tables"].items() if rows != now[name]]
        found = files(self.root)
        return differ + [
            path for path in {**expected["files"], **found} if expected["files"].get(path) != found.get(path)
        ]


def tables(root: Path) -> dict[str, list[str]]:
    """Every row of every table, sorted, without times and the ids of processes and attempts."""
    warehouse = Warehouse(root)
    names = warehouse.query("SELECT table_name FROM duckdb_tables() ORDER BY 1")["table_name"].to_pylist()
    found = {}
    for name in names:
        rows = warehouse.query(f"FROM {name}").to_pylist()
        left_out = NOT_COMPARED.get(name, set())
        found[name] = sorted(
            json.dumps({key: value for key, value in row.items() if key not in left_out}, sort_keys=True, default=str)
            for row in rows
        )
    return found


def files(root: Path) -> dict[str, str]:
    """sha256 of the weights of every policy, and of every Parquet file in the lake."""
    found = [*root.glob("policies/[!.]*/*.safetensors"), *root.glob("lake/*/*/*.parquet")]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(found)}


def n_bytes(root: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


def temporary_files(root: Path) -> list[str]:
    """What killed writers have left behind."""
    found = (*root.glob("policies/.*unnamed*"), *root.rglob(".*.tmp"))
    return sorted(str(path.relative_to(root)) for path in found)
