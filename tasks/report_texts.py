"""What the policy wrote, out of the rollout files in the lake, for the report."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline_lib.report import SCHEMAS
from warehouse.warehouse import Query

N_SAMPLES = 4
"""Prompts shown with one completion of the first and one of the last policy."""

EVALUATED = """
    SELECT stage, min(path) AS path FROM run_steps JOIN steps USING (fingerprint) JOIN shards USING (fingerprint)
    WHERE run_id = $1 AND run_steps.name = 'evaluate' AND status = 'completed' GROUP BY stage ORDER BY stage
"""
ASKED = "SELECT prompt_id, messages, gold FROM prompts WHERE list_contains($1, prompt_id)"
# What was collected again for a stage comes before what the initial policy made of the same prompt.
RANKED_BY = """
    SELECT stage, path FROM run_steps JOIN shards USING (fingerprint)
    WHERE run_id = $1 AND name IN ('rollouts_train', 'recollect_train') AND stage <= $2
    ORDER BY stage DESC, path
"""
SHOWN = ["prompt_id", "sample_index", "text", "reward", "correct"]


def evaluation_samples(query: Query, root: Path, run_id: str) -> pa.Table:
    """One completion of a few evaluation prompts from the first and from the last policy."""
    evaluated = query(EVALUATED, [run_id]).to_pylist()
    rows: list[dict[str, Any]] = []
    ends = evaluated[:1] + evaluated[1:][-1:]
    for evaluation in ends:
        path = root / evaluation["path"]
        if not path.exists():
            continue
        firsts = _read(path, pc.field("sample_index") == 0)
        chosen = firsts[:: max(1, len(firsts) // N_SAMPLES)][:N_SAMPLES]
        asked = {row["prompt_id"]: row for row in query(ASKED, [[r["prompt_id"] for r in chosen]]).to_pylist()}
        rows += [
            {
                "policy": _policy(evaluation["stage"]),
                "prompt": json.loads(asked[row["prompt_id"]]["messages"])[-1]["content"],
                "gold": asked[row["prompt_id"]]["gold"],
                "completion": row["text"],
                "reward": row["reward"],
                "correct": row["correct"],
            }
            for row in chosen
        ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["samples"])


def ranked_completions(query: Query, root: Path, run_id: str, ranked: pa.Table) -> pa.Table:
    """The first right and the first wrong completion of each of the report's `ranked_prompts`.

    From the newest rollouts that the prompt was ranked by. A prompt whose files are gone has none.
    """
    rows: list[dict[str, Any]] = []
    missing = set(ranked["prompt_id"].to_pylist())
    stage = max(ranked["stage"].to_pylist(), default=0)
    for shard in query(RANKED_BY, [run_id, stage]).to_pylist():
        found = _of_prompts(root / shard["path"], missing)
        missing -= found.keys()
        policy = "initial policy" if shard["stage"] <= 1 else f"policy {_policy(shard['stage'] - 1)}"
        rows += [
            {
                "prompt_id": prompt_id,
                "policy": policy,
                "completion": row["text"],
                "reward": row["reward"],
                "correct": row["correct"],
            }
            for prompt_id, completions in found.items()
            for row in _first_of_each(completions)
        ]
        if not missing:
            break
    return pa.Table.from_pylist(rows, schema=SCHEMAS["completions"])


def _of_prompts(path: Path, prompt_ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Rows of the file by prompt. The texts are read only where the file has one of the prompts."""
    if not path.exists():
        return {}
    with pq.ParquetFile(path) as file:
        here = set(file.read(["prompt_id"])["prompt_id"].to_pylist()) & set(prompt_ids)
    by_prompt: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if here:
        for row in _read(path, pc.field("prompt_id").isin(sorted(here))):
            by_prompt[row["prompt_id"]].append(row)
    return by_prompt


def _read(path: Path, where: pc.Expression) -> list[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read(SHOWN).filter(where).to_pylist()
    return rows


def _first_of_each(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = sorted(rows, key=lambda row: row["sample_index"])
    firsts = (next((row for row in rows if row["correct"] == correct), None) for correct in (True, False))
    return [row for row in firsts if row is not None]


def _policy(stage: int) -> str:
    return "initial" if stage == 0 else f"after stage {stage}"
