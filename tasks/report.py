"""The report of a run: one HTML file under <root>/reports, made from the published snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.atomic import write_text
from pipeline_lib.report import SCHEMAS, ReportData, render_report
from tasks.step import Done, Step, Work, Workshop, fingerprints
from warehouse import Warehouse, WarehouseError
from warehouse.lake import read_shard

N_SAMPLES = 4
"""Prompts shown with one completion of the first and one of the last policy."""

EVALUATED = """
    SELECT stage, outputs FROM run_steps JOIN steps USING (fingerprint)
    WHERE run_id = $1 AND run_steps.name = 'evaluate' AND status = 'completed' ORDER BY stage
"""
ASKED = "SELECT prompt_id, messages, gold FROM prompts WHERE list_contains($1, prompt_id)"


@dataclass(frozen=True)
class Report(Step):
    name: ClassVar[str] = "report"

    made_from: tuple[Done, ...]
    """All that nothing else rests on: the evaluations, first to last, and what was found out beside them."""

    def settings(self) -> dict[str, Any]:
        return {"run_id": self.run.name}

    def inputs(self) -> dict[str, str]:
        return fingerprints("made_from", self.made_from)

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        return [] if (self.root / outputs["path"]).exists() else [outputs["path"]]

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        path = write_report(at.warehouse, self.run.name)
        return Work({"path": str(path.relative_to(self.root))})


def report_path(root: Path, run_id: str) -> Path:
    return root / "reports" / f"{run_id}.html"


def write_report(warehouse: Warehouse, run_id: str) -> Path:
    """Write the report of what the run has done so far. Raises WarehouseError where no such run is known."""
    known = warehouse.snapshot_query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist()
    if run_id not in known:
        raise WarehouseError(f"no run is named {run_id!r} under {warehouse.root}; there are: {', '.join(known)}")
    names = [field.name for field in fields(ReportData) if field.name != "samples"]
    tables = {name: warehouse.named_query(f"report_{name}", run_id=run_id) for name in names}
    tables["samples"] = _samples(warehouse, run_id)
    path = report_path(warehouse.root, run_id)
    write_text(path, render_report(ReportData.from_tables(tables)))
    return path


def _samples(warehouse: Warehouse, run_id: str) -> pa.Table:
    """One completion of a few evaluation prompts from the first and from the last policy."""
    evaluated = warehouse.snapshot_query(EVALUATED, [run_id]).to_pylist()
    rows: list[dict[str, Any]] = []
    ends = evaluated[:1] + evaluated[1:][-1:]
    for evaluation in ends:
        shard = read_shard(warehouse.root / json.loads(evaluation["outputs"])["shards"][0]).to_pylist()
        firsts = [row for row in shard if row["sample_index"] == 0]
        chosen = firsts[:: max(1, len(firsts) // N_SAMPLES)][:N_SAMPLES]
        asked = {
            row["prompt_id"]: row
            for row in warehouse.snapshot_query(ASKED, [[r["prompt_id"] for r in chosen]]).to_pylist()
        }
        stage = evaluation["stage"]
        rows += [
            {
                "policy": "initial" if stage == 0 else f"after stage {stage}",
                "prompt": json.loads(asked[row["prompt_id"]]["messages"])[-1]["content"],
                "gold": asked[row["prompt_id"]]["gold"],
                "completion": row["text"],
                "reward": row["reward"],
                "correct": row["correct"],
            }
            for row in chosen
        ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["samples"])
