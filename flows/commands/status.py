"""rlsift status: the runs of a root and their steps, read from the published snapshot."""

from __future__ import annotations

from rich.console import Console

from flows.commands.tables import rich_table
from warehouse import Warehouse, WarehouseError

RUNS = """
    SELECT run_id, status, stages,
           (SELECT count(*) FROM run_progress p WHERE p.run_id = r.run_id AND p.status = 'completed') AS steps_done,
           strftime(created_at, '%Y-%m-%d %H:%M') AS created, strftime(updated_at, '%Y-%m-%d %H:%M') AS updated
    FROM runs r ORDER BY created_at
"""
STEPS = """
    SELECT stage, name AS step, status,
           round(epoch(coalesce(finished_at, now()) - started_at), 1) AS seconds, attempts, fingerprint, error
    FROM run_progress WHERE run_id = $1 ORDER BY started_at
"""


def print_status(console: Console, warehouse: Warehouse, run_id: str | None) -> None:
    """All runs, or the steps of one."""
    if run_id is None:
        console.print(rich_table(warehouse.snapshot_query(RUNS)))
        return
    run_id = the_run(warehouse, run_id)
    steps = warehouse.snapshot_query(STEPS, [run_id])
    errors = [row for row in steps.to_pylist() if row["error"]]
    console.print(rich_table(steps.drop_columns(["error"]), title=f"Run {run_id}"))
    for row in errors:
        console.print(f"stage {row['stage']} · {row['step']} failed: {row['error']}", markup=False)


def the_run(warehouse: Warehouse, run_id: str | None) -> str:
    """`run_id` if it is known, or the only run where none is given. Raises WarehouseError."""
    known = warehouse.snapshot_query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist()
    if run_id is None and len(known) == 1:
        return str(known[0])
    if run_id is None or run_id not in known:
        asked = "more than one run is there" if run_id is None else f"no run is named {run_id!r}"
        raise WarehouseError(f"{asked} under {warehouse.root}; name one of: {', '.join(known) or '(none)'}")
    return run_id
