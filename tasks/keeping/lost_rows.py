"""Rows that a finished step has written and that are there no longer, as what else is known of the step tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks.keeping.fault import Fault
from tasks.keeping.garbage import USED
from warehouse import Warehouse
from warehouse.totals import GATHERED

COUNTED = {"rollout_stats": "n_observations", "sampler_decisions": "n_decisions"}
"""Column of what is gathered of a table: of how many of its rows."""
# A rollout step's files have each prompt `samples` times; a training step tells how many prompts it rolled out.
COUNTS = f"""
    WITH written AS (
        SELECT 'rollout_stats' AS table_name, fingerprint, sum(n_rows) // any_value(samples) AS n
        FROM shards JOIN rollout_settings USING (fingerprint) GROUP BY ALL
        UNION ALL
        SELECT 'rollout_stats', fingerprint, sum(prompts_rolled_out) FROM train_steps GROUP BY ALL
    ),
    here AS (SELECT fingerprint, count(*) AS n FROM {{table}} GROUP BY ALL),
    kept AS (SELECT fingerprint, sum({{counted}}) AS n FROM {{gathered}} GROUP BY ALL)
    SELECT fingerprint, name, status, coalesce(here.n, 0) AS n_here, coalesce(kept.n, 0)::BIGINT AS n_kept,
           coalesce(greatest(written.n, kept.n), 0)::BIGINT AS n_written,
           fingerprint NOT IN (FROM ungathered) AS is_gathered
    FROM steps
    LEFT JOIN here USING (fingerprint)
    LEFT JOIN kept USING (fingerprint)
    LEFT JOIN written ON written.fingerprint = steps.fingerprint AND written.table_name = '{{table}}'
    WHERE status IN ('completed', 'imported') AND steps.fingerprint IN ({USED}) ORDER BY fingerprint
"""
PROMPTS = f"""
    SELECT fingerprint, name, status, any_value(source) AS source, count(DISTINCT prompt_id) AS n
    FROM prompt_sources ANTI JOIN prompts USING (prompt_id) LEFT JOIN steps USING (fingerprint)
    WHERE status IS NULL OR status IN ('completed', 'imported') AND fingerprint IN ({USED})
    GROUP BY ALL ORDER BY fingerprint
"""


def find_lost_rows(warehouse: Warehouse) -> Iterator[Fault]:
    """Looked for in the newest snapshot."""
    for table, gathered in GATHERED.items():
        sql = COUNTS.format(table=table, counted=COUNTED[table], gathered=gathered)
        for row in warehouse.snapshot_query(sql).to_pylist():
            where = f"{row['name']} {row['fingerprint']}"
            if row["n_here"] < row["n_written"]:
                yield Fault(f"{row['n_here']} rows of {table}, of {row['n_written']}", where, _again(row))
            elif row["n_kept"] != (row["n_here"] if row["is_gathered"] else 0):
                what = f"{gathered} tells of {row['n_kept']} rows of {table}, of {row['n_here']}"
                yield Fault(what, where, _gather_again(row["fingerprint"]))
    for row in warehouse.snapshot_query(PROMPTS).to_pylist():
        step = "rlsift ingest" if row["name"] is None else row["name"]
        yield Fault(f"{row['n']} of its prompts are gone", f"{step} {row['fingerprint']}, {row['source']}", _again(row))


def _gather_again(fingerprint: str) -> str:
    """What is not gathered is looked up row by row, until any step ends."""
    forget = "; ".join(f"DELETE FROM {table} WHERE fingerprint = '{fingerprint}'" for table in GATHERED.values())
    return f"{forget}; INSERT INTO ungathered VALUES ('{fingerprint}'), in DuckDB on warehouse.duckdb"


def _again(row: dict[str, Any]) -> str:
    own = f"WHERE fingerprint = '{row['fingerprint']}'"
    if row["status"] is None:
        return f"DELETE FROM prompt_sources {own}, in DuckDB on warehouse.duckdb; then `rlsift ingest` reads it again"
    if row["status"] == "imported":
        return "`rlsift import` brings them again"
    # Without their records shards count as never collected.
    return (
        f"UPDATE steps SET status = 'removed' {own}; DELETE FROM shards {own}, in DuckDB on warehouse.duckdb; then "
        "`rlsift run` does it again"
    )
