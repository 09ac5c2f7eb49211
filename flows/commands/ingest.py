"""rlsift ingest: one data set into the warehouse, with an account of every row."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from flows.commands.tables import rich_table
from pipeline_lib.config import Columns, DataFormat, DatasetSource, FileSource
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.readers import KINDS
from pipeline_lib.prompts.rejects import REMEDIES
from tasks.prompt_rows import ingest_data
from warehouse import Warehouse


def ingest_and_account(
    console: Console, warehouse: Warehouse, source: FileSource | DatasetSource, n_rejects: int
) -> None:
    """Ingest `source`, print its format and the counts, and list up to `n_rejects` of the rows that were left out."""
    found, known = ingest_data(warehouse, source, lambda sentence: console.print(sentence, soft_wrap=True))
    sources, verifiers = _names(found, "data_source"), _names(found, "verifier")
    console.print(f"rows        {found.n_rows:>9,}")
    console.print(f"prompts     {found.n_prompts:>9,}  from {', '.join(sources)}; graded by {', '.join(verifiers)}")
    console.print(f"duplicates  {found.n_duplicates:>9,}  merged")
    if found.n_asked_again:
        console.print(
            f"near ones   {found.n_asked_again:>9,}  differ from another prompt in white space or the like; kept"
        )
    if found.n_not_drawn:
        console.print(f"not drawn   {found.n_not_drawn:>9,}  by the limit")
    console.print(f"left out    {len(found.rejects):>9,}")
    for reason, count in found.reject_counts.items():
        console.print(f"  {reason:<24} {count:>9,}  {REMEDIES[reason]}", soft_wrap=True, highlight=False)
    if len(found.rejects):
        rows = (row for batch in found.rejects.batches() for row in batch.to_pylist())
        shown = [{"row": r["row_index"], "reason": r["reason"], "detail": r["detail"]} for r in islice(rows, n_rejects)]
        console.print(rich_table(pa.Table.from_pylist(shown), title=f"Left out of {source.path}"))
        console.print('All of them: rlsift sql "SELECT * FROM prompt_rejects" --root ' + str(warehouse.root))
    if known:
        console.print("This data set was in the warehouse already; nothing changed.")


def named_source(
    data: str, form: DataFormat, mapping: str | None, *, name: str | None, split: str, revision: str | None
) -> FileSource | DatasetSource:
    """What the words of the command line name: a file by its ending, else a data set of the package `datasets`."""
    columns = None if mapping is None else _columns(mapping)
    if columns is not None and form != "auto":
        raise ValueError(f"give either --format {form} or --map: --map says how to read columns of no known format")
    path = Path(data)
    if path.is_file() or path.suffix in (*KINDS, ".gz"):
        return FileSource(path=str(path.absolute()), format=form, columns=columns)
    if path.is_dir():
        data = str(path.absolute())
    return DatasetSource(path=data, format=form, columns=columns, name=name, split=split, revision=revision)


def _columns(mapping: str) -> Columns:
    """Of `prompt=COLUMN,gold=COLUMN` and perhaps `,source=COLUMN`."""
    named = dict(part.split("=", 1) for part in mapping.split(",") if "=" in part)
    named = {key.strip(): column.strip() for key, column in named.items()}
    if not {"prompt", "gold"} <= named.keys() <= {"prompt", "gold", "source"} or not all(named.values()):
        raise ValueError(f"--map {mapping}: must have the form prompt=COLUMN,gold=COLUMN, and may add ,source=COLUMN")
    return Columns(**named)


def _names(found: PromptSet, column: str) -> list[str]:
    return sorted({name for batch in found.prompt_batches() for name in batch[column].unique().to_pylist()})
