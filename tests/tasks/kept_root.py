"""A root with a few steps of a run, their files and their records, made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import save_file
from warehouse_rows import run, stats, table

from pipeline_lib.grpo.checkpoint_files import write_marker
from pipeline_lib.parquet import write_parquet
from pipeline_lib.policy import policy_id_of
from tasks.keeping.garbage import Garbage
from warehouse import Warehouse
from warehouse.lake import write_shard

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def kept_root(root: Path) -> Warehouse:
    """Of a run `demo` that is complete; nothing is amiss, and its checkpoints alone are of no more use."""
    warehouse = Warehouse(root)
    (root / "locks").mkdir(parents=True)
    warehouse.write({"runs": table(run("demo"))})
    add_step(warehouse, "pool", "rollouts_train", shards=2, used=True)
    add_step(warehouse, "score", "score", parts=1, used=True)
    add_step(warehouse, "train", "train", policy="trained", used=True)
    warehouse.publish()
    return warehouse


def add_step(
    warehouse: Warehouse,
    fingerprint: str,
    name: str,
    *,
    shards: int = 0,
    parts: int = 0,
    policy: str | None = None,
    used: bool = False,
    status: str = "completed",
    inputs: dict[str, str] | None = None,
    outputs: dict[str, Any] | None = None,
) -> None:
    """With `shards` of rollouts, `parts` of scores, or a trained policy and one checkpoint with its step's records."""
    root = warehouse.root
    outputs = dict(outputs or {})
    tables: dict[str, pa.Table] = {}
    if shards:
        files = [
            write_shard(root / f"lake/rollouts/{fingerprint}/shard-{i:05d}.parquet", pa.table({"n": [i]}), {})
            for i in range(shards)
        ]
        outputs["shards"] = [str(file.path.relative_to(root)) for file in files]
        facts = [{"n_rows": f.n_rows, "n_bytes": f.n_bytes, "sha256": f.sha256} for f in files]
        tables["shards"] = table(
            *({"shard_index": i, "path": outputs["shards"][i], **fact} for i, fact in enumerate(facts))
        )
        tables["rollout_stats"] = table(*(stats(fingerprint, f"p{i}", i) for i in range(4)))
    if parts:
        outputs["lake"] = [f"lake/scores/{fingerprint}/shard-{i:05d}.parquet" for i in range(parts)]
        for path in outputs["lake"]:
            write_parquet(root / path, pa.table({"dot": [0.5]}))
    if policy is not None:
        path = root / "policies" / policy
        path.mkdir(parents=True)
        save_file({"w": torch.ones(2)}, path / "model.safetensors")
        (path / "config.json").write_text("{}")
        directory = root / f"stages/demo/1-{fingerprint}"
        outputs |= {"path": str(path.relative_to(root)), "policy_id": policy_id_of(path)}
        outputs |= {"directory": str(directory.relative_to(root)), "steps": 1}
        write_parquet(directory / "records/step-000001/train_steps.parquet", pa.table({"step": [1]}))
        checkpoint = directory / "checkpoints/step-000001"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.pt").write_bytes(b"state")
        write_marker(checkpoint)
    row = {"fingerprint": fingerprint, "name": name, "status": status, "settings": "{}"}
    row |= {"inputs": json.dumps(inputs or {})}
    row |= {"outputs": json.dumps(outputs), "attempts": 1, "started_at": NOW, "finished_at": NOW}
    warehouse.write({**tables, "steps": table(row)}, fingerprint=fingerprint)
    if used:
        stage = 0 if name.startswith("rollouts") else 1
        taken = {"run_id": "demo", "stage": stage, "name": name, "fingerprint": fingerprint}
        warehouse.write({"run_steps": table(taken)})


def names(warehouse: Warehouse, found: Iterable[Garbage]) -> set[str]:
    return {str(garbage.path.relative_to(warehouse.root)) for garbage in found}
