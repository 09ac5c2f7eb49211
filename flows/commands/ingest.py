"""rlsift ingest: one data set into the warehouse, with an account of every row."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console

from flows.commands.tables import rich_table
from pipeline_lib.config import FileSource
from tasks.prompt_rows import ingest_file
from warehouse import Warehouse


def ingest_and_account(console: Console, warehouse: Warehouse, source: FileSource, n_rejects: int) -> None:
    """Ingest `source`, print the counts, and list up to `n_rejects` of the rows that were left out."""
    result, known = ingest_file(warehouse, source)
    sources = sorted({prompt.data_source for prompt in result.prompts.values()})
    verifiers = sorted({prompt.verifier for prompt in result.prompts.values()})
    console.print(f"rows        {result.n_rows:>9,}")
    console.print(f"prompts     {result.n_prompts:>9,}  from {', '.join(sources)}; graded by {', '.join(verifiers)}")
    console.print(f"duplicates  {result.n_duplicates:>9,}  merged")
    console.print(f"left out    {len(result.rejects):>9,}")
    for reason, count in result.reject_counts.items():
        console.print(f"  {reason:<24} {count:>9,}")
    if result.rejects:
        shown = [{"row": r.row_index, "reason": r.reason, "detail": r.detail} for r in result.rejects[:n_rejects]]
        console.print(rich_table(pa.Table.from_pylist(shown), title="Left out"))
        console.print('All of them: rlsift sql "SELECT * FROM prompt_rejects" --root ' + str(warehouse.root))
    if known:
        console.print("This file was in the warehouse already; nothing changed.")
