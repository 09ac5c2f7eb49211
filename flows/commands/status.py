"""rlsift status: the runs of a root and their steps, read from the published snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console

from flows.commands.tables import rich_table
from tasks.locks import interrupted_steps
from warehouse import Warehouse, WarehouseError
from warehouse.asking import quoted
from warehouse.warehouse import Query

RUNS = """
    WITH progress AS (
        SELECT run_id, count_if(status IN ('completed', 'imported')) AS steps_done,
               bool_or(status = 'running' AND list_contains({interrupted}, fingerprint)) AS interrupted,
               bool_or(status = 'running' AND NOT list_contains({interrupted}, fingerprint)) AS worked_on
        FROM run_progress GROUP BY ALL
    )
    SELECT run_id, CASE WHEN status = 'running' AND interrupted AND NOT worked_on THEN 'interrupted' ELSE status END
               AS status,
           stages, coalesce(steps_done, 0) AS steps_done,
           strftime(created_at, '%Y-%m-%d %H:%M') AS created, strftime(updated_at, '%Y-%m-%d %H:%M') AS updated
    FROM runs LEFT JOIN progress USING (run_id) ORDER BY created_at
"""
STEPS = """
    SELECT stage, name AS step,
           CASE WHEN gone THEN 'interrupted' ELSE coalesce(status, 'not recorded') END AS status,
           CASE WHEN NOT gone THEN round(epoch(coalesce(finished_at, now()) - started_at), 1) END AS seconds,
           attempts, fingerprint, error
    FROM (
        SELECT *, status = 'running' AND list_contains({interrupted}, fingerprint) AS gone
        FROM run_progress WHERE run_id = {run_id}
    ) ORDER BY stage, list_position({order}, name)
"""
# Values stand in the SQL itself: to look at a parameter, DuckDB imports pandas where it is installed, for half of the
# second in which this command has to answer.
ORDER = [
    "policy",
    "ingest",
    "similarity",
    "relevance",
    "rollouts_train",
    "rollouts_validation",
    "drift",
    "recollect_train",
    "recollect_validation",
    "score",
    "select",
    "diagnose",
    "train",
    "evaluate",
    "report",
]
"""Of the steps within a stage, as flows/chain.py walks them. Times would not do: a step may be done again, a clock set
back."""
INTERRUPTED = (
    "interrupted: the process that worked on it is gone, and `rlsift run` goes on from there. In SQL, where "
    "processes are not seen, its status is still running."
)


def print_status(console: Console, warehouse: Warehouse, run_id: str | None) -> None:
    """All runs, or the steps of one."""
    if run_id is None:
        shown = warehouse.snapshot_query(RUNS.format(interrupted=_literals(interrupted_steps(warehouse))))
        console.print(rich_table(shown) if shown.num_rows else f"{_none_has_begun(warehouse)}.", soft_wrap=True)
    else:
        run_id = the_run(warehouse, run_id)
        shown = steps_of(warehouse.snapshot_query, run_id, interrupted_steps(warehouse))
        console.print(rich_table(shown.drop_columns(["error"]), title=f"Run {run_id}"))
        for row in shown.to_pylist():
            if row["error"]:
                console.print(f"stage {row['stage']} · {row['step']} failed: {row['error']}")
    if "interrupted" in shown["status"].to_pylist():
        console.print(INTERRUPTED, highlight=False)


def steps_of(query: Query, run_id: str, interrupted: Sequence[str]) -> pa.Table:
    """The run's steps in order, with their state as it really is: one that nobody works on is interrupted.

    `interrupted` was found before: of a snapshot no newer than the one that `query` reads.
    """
    given = {
        "interrupted": _literals(interrupted),
        "run_id": quoted(run_id),
        "order": _literals(ORDER),
    }
    return query(STEPS.format(**given))


def _literals(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]::VARCHAR[]"


def _none_has_begun(warehouse: Warehouse) -> str:
    return f"no run has begun under {warehouse.root} yet; `rlsift run CONFIG` begins one"


def the_run(warehouse: Warehouse, run_id: str | None) -> str:
    """`run_id` if it is known, or the only run where none is given. Raises WarehouseError."""
    known = warehouse.snapshot_query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist()
    if not known:
        raise WarehouseError(_none_has_begun(warehouse))
    if run_id is None and len(known) == 1:
        return str(known[0])
    if run_id is None or run_id not in known:
        asked = "more than one run is there" if run_id is None else f"no run is named {run_id!r}"
        raise WarehouseError(f"{asked} under {warehouse.root}; name one of: {', '.join(known)}")
    return run_id
