"""The report of a run, or of two: one HTML file under <root>/reports, made from the published snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.atomic import write_text
from pipeline_lib.report import (
    FROM_FILES,
    PAIR_SCHEMAS,
    SCHEMAS,
    PairData,
    ReportData,
    render_pair,
    render_report,
)
from tasks.report_texts import evaluation_samples, ranked_completions
from tasks.step import Done, Step, Work, Workshop, fingerprints
from warehouse import Warehouse, WarehouseError
from warehouse.warehouse import NAMED_QUERIES, Query


@dataclass(frozen=True)
class Report(Step):
    name: ClassVar[str] = "report"
    contract: ClassVar[int] = 2  # where prompts went, what a rollout was worth, batches, times, completions

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


def report_path(root: Path, *run_ids: str) -> Path:
    """Of one run, or of two: no run's name has a ~."""
    return root / "reports" / f"{'~'.join(run_ids)}.html"


def write_report(warehouse: Warehouse, run_id: str) -> Path:
    """Write the report of what the run has done so far. Raises WarehouseError where no such run is known."""
    with warehouse.one_snapshot() as query:
        _check_known(query, warehouse.root, run_id)
        tables = _queried(query, run_id)
        tables["samples"] = evaluation_samples(query, warehouse.root, run_id)
        tables["completions"] = ranked_completions(query, warehouse.root, run_id, tables["ranked_prompts"])
    path = report_path(warehouse.root, run_id)
    write_text(path, render_report(ReportData.from_tables(tables)))
    return path


def write_pair_report(warehouse: Warehouse, run_id: str, other: str) -> Path:
    """Write the report of two runs side by side. Raises WarehouseError where one is not known, or both are one."""
    if run_id == other:
        raise WarehouseError(f"{run_id!r} is named twice: a report of two runs compares one run with another")
    both = {"run_id": run_id, "other": other}
    with warehouse.one_snapshot() as query:
        _check_known(query, warehouse.root, run_id, other)
        tables = {name: query(NAMED_QUERIES[f"report_pair_{name}"], both) for name in PAIR_SCHEMAS}
        ours, theirs = (ReportData.from_tables(_queried(query, run)) for run in (run_id, other))
    path = report_path(warehouse.root, run_id, other)
    write_text(path, render_pair(PairData.from_tables(ours, theirs, tables)))
    return path


def _check_known(query: Query, root: Path, *run_ids: str) -> None:
    known = query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist()
    for run_id in run_ids:
        if run_id not in known:
            raise WarehouseError(f"no run is named {run_id!r} under {root}; there are: {', '.join(known)}")


def _queried(query: Query, run_id: str) -> dict[str, pa.Table]:
    return {
        name: query(NAMED_QUERIES[f"report_{name}"], {"run_id": run_id}) for name in SCHEMAS if name not in FROM_FILES
    }
