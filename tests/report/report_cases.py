"""The report's tables of a fabricated run, with texts that try to break the page.

Run as a script it renders the report of a run and that of two: python tests/report/report_cases.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pyarrow as pa
from fabricated_run import NASTY_PROMPT, OTHER_ID, RUN_ID, WAREHOUSE, empty_warehouse, fabricate

from pipeline_lib.report import PAIR_SCHEMAS, PairData, ReportData, render_pair, render_report


def load(connection: duckdb.DuckDBPyConnection, query: str, run_id: str = RUN_ID, **others: str) -> pa.Table:
    text = (WAREHOUSE / "queries" / f"report_{query}.sql").read_text()
    return connection.execute(text, {"run_id": run_id, **others}).to_arrow_table()


def load_all(connection: duckdb.DuckDBPyConnection, run_id: str = RUN_ID) -> dict[str, pa.Table]:
    queries = sorted((WAREHOUSE / "queries").glob("report_*.sql"))
    names = [path.stem.removeprefix("report_") for path in queries]
    return {name: load(connection, name, run_id) for name in names if not name.startswith("pair_")}


def load_pair(connection: duckdb.DuckDBPyConnection, run_id: str = RUN_ID, other: str = OTHER_ID) -> PairData:
    ours, theirs = (ReportData.from_tables(load_all(connection, name)) for name in (run_id, other))
    tables = {name: load(connection, f"pair_{name}", run_id, other=other) for name in PAIR_SCHEMAS}
    return PairData.from_tables(ours, theirs, tables)


def completions_of(ranked: pa.Table) -> pa.Table:
    """A right and a wrong one, of a policy that writes HTML."""
    nasty = "<img src=x onerror=\"console.error('completion ran')\">"
    return pa.Table.from_pylist(
        [
            {
                "prompt_id": prompt_id,
                "policy": "initial policy",
                "completion": f"It is {correct}: {nasty}",
                "reward": float(correct),
                "correct": correct,
            }
            for prompt_id in ranked["prompt_id"].to_pylist()
            for correct in (True, False)
        ]
    )


def whole_report(connection: duckdb.DuckDBPyConnection, run_id: str = RUN_ID) -> ReportData:
    tables = load_all(connection, run_id)
    texts = {"samples": sample_completions(), "completions": completions_of(tables["ranked_prompts"])}
    return ReportData.from_tables({**tables, **texts})


def sample_completions() -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "policy": "after stage 2",
                "prompt": "3+4+5=",
                "gold": "2",
                "completion": "3+4=7\n7+5=12, modulo 10 that is 2.\n#### 2",
                "reward": 1.0,
                "correct": True,
            },
            {
                "policy": "after stage 2",
                "prompt": NASTY_PROMPT,
                "gold": "<i>7</i>",
                "completion": "<img src=x onerror=\"console.error('completion ran')\"> " + "so " * 300,
                "reward": None,
                "correct": False,
            },
        ]
    )


if __name__ == "__main__":
    warehouse = empty_warehouse()
    fabricate(warehouse)
    fabricate(warehouse, run_id=OTHER_ID, strategy="random", skips=False, seed=8)
    directory = Path(sys.argv[1])
    (directory / "one.html").write_text(render_report(whole_report(warehouse)), encoding="utf-8")
    (directory / "two.html").write_text(render_pair(load_pair(warehouse)), encoding="utf-8")
