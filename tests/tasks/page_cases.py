"""A run of two stages in a real warehouse, small enough to know every number of its pages by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import warehouse_rows
from warehouse_rows import selection, stats

from warehouse import Warehouse

RUN = "r"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEPS = [
    (0, "ingest", "ing"),
    (0, "rollouts_train", "off"),
    (0, "evaluate", "ev0"),
    (1, "select", "sel1"),
    (1, "train", "tr1"),
    (1, "evaluate", "ev1"),
    (2, "select", "sel2"),
]
COUNTS = {
    "train/train": {"rows": 6, "prompts": 4, "duplicates": 1, "rejects": {"no_gold": 1}},
    "evaluation/gsm": {"rows": 2, "prompts": 2, "duplicates": 0, "rejects": {}},
}


def two_stages(root: Path) -> Warehouse:
    warehouse = Warehouse(root)
    tables = {
        "run_steps": [{"run_id": RUN, "stage": m, "name": name, "fingerprint": f} for m, name, f in STEPS],
        "steps": [_step(name, fingerprint) for _, name, fingerprint in STEPS],
        "prompts": [_prompt(i) for i in "abcd"],
        "rollout_stats": [
            *(stats("off", i, n) for i, n in {"a": 0, "b": 4, "c": 2, "d": 4}.items()),
            stats("tr1", "a", 1, step=1, phase="train"),
        ],
        "selections": [
            *(selection("sel1", i, rank, selected=rank < 3) for rank, i in enumerate("acbd", 1)),
            *(selection("sel2", i, rank, selected=rank < 3) for rank, i in enumerate("dabc", 1)),
        ],
        "train_steps": [train_step(step, reward=step / 100) for step in range(1, 26)],
        "evaluations": [
            _evaluation("ev0", "avg", 0.2),
            _evaluation("ev0", "pass", 0.6),
            _evaluation("ev1", "avg", 0.5),
            _evaluation("ev1", "pass", 0.7),
        ],
    }
    warehouse.write({name: pa.Table.from_pylist(rows) for name, rows in tables.items()})
    warehouse.publish()
    return warehouse


def train_step(step: int, **values: Any) -> dict[str, Any]:
    known = {"rollouts": 8, "prompts_skipped": 3, "frac_reward_zero_std": 0.25}
    return warehouse_rows.train_step("tr1", step, **known | values)


def _step(name: str, fingerprint: str) -> dict[str, Any]:
    outputs = json.dumps({"sets": COUNTS}) if name == "ingest" else "{}"
    ended = NOON + timedelta(seconds=30)
    return warehouse_rows.step(fingerprint, NOON, ended) | {"name": name, "outputs": outputs}


def _prompt(prompt_id: str) -> dict[str, Any]:
    messages = json.dumps([{"role": "user", "content": f"What is {prompt_id}?"}])
    return warehouse_rows.prompt(prompt_id, kind="letter") | {"messages": messages}


def _evaluation(fingerprint: str, metric: str, value: float) -> dict[str, Any]:
    return warehouse_rows.evaluation(fingerprint, metric, value) | {"standard_error": 0.05, "n_prompts": 2}
