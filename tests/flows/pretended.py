"""A run whose steps only pretend to work: real fingerprints, real records, no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from flows.chain import finish, walk
from flows.runs import record_run
from pipeline_lib.config import RunConfig
from tasks.diagnosis import Diagnose
from tasks.drift import MeasureDrift
from tasks.evaluation import Evaluate
from tasks.policy import ImportPolicy
from tasks.prompts import IngestPrompts
from tasks.report import Report
from tasks.rollouts import RolloutStep
from tasks.scores import Score
from tasks.selection import Select
from tasks.step import Step, Work, Workshop, perform
from tasks.training import TrainStage
from warehouse import Warehouse
from warehouse.lake import write_shard

STEPS = (ImportPolicy, IngestPrompts, RolloutStep, Evaluate, Score, Select, Diagnose, MeasureDrift, TrainStage, Report)


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in STEPS:
        monkeypatch.setattr(kind, "work", _work)


def run_pretended(config: RunConfig) -> None:
    record_run(config, "running")
    with patch.object(Warehouse, "publish"):  # after every step it would take most of the time
        finish(config, *walk(config, perform, stages=config.stages), perform)
    record_run(config, "completed")


def shard_of(step: Step) -> Path:
    return step.root / "lake" / "rollouts" / step.fingerprint / "shard-00000.parquet"


def _work(step: Step, at: Workshop) -> Work:
    at.reporter.start(step.label, None, "")
    outputs: dict[str, Any] = {
        "policy_id": f"policy-{step.fingerprint}",
        "ranks_id": f"ranks-{step.fingerprint}",
        "path": str(step.root),
        "lake": [],
        "graded_by": {},
    }
    if not isinstance(step, RolloutStep | TrainStage):
        return Work(outputs)
    tables = {}
    if isinstance(step, RolloutStep):
        shard = write_shard(shard_of(step), pa.table({"x": [1]}), {})
        row = {"shard_index": 0, "path": str(shard.path.relative_to(step.root)), "sha256": shard.sha256}
        tables["shards"] = pa.Table.from_pylist([row | {"n_rows": shard.n_rows, "n_bytes": shard.n_bytes}])
        outputs["shards"] = [row["path"]]
    stats = {
        "prompt_id": "p",
        "step": 0,
        "phase": step.phase if isinstance(step, RolloutStep) else "train",
        "policy_id": "policy",
        "n": 2,
        "n_correct": 1,
        "n_ungraded": 0,
        "outcome": "mixed",
        "has_signal": True,
        "n_truncated": 0,
        "mean_length": 1.0,
        "max_length": 1,
    }
    return Work(outputs, tables | {"rollout_stats": pa.Table.from_pylist([stats])})
