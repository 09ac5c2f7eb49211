"""Prompts in the warehouse: the rows that an ingest writes, and reading them back. Light: neither torch nor Prefect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from pipeline_lib.config import DatasetSource, FileSource
from pipeline_lib.prompts.arrow import prompt_of
from pipeline_lib.prompts.contamination import HeldOut
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.sources import source_identity
from pipeline_lib.records import Prompt
from tasks.locks import one_ingest_at_a_time
from warehouse import Warehouse

if TYPE_CHECKING:
    from tasks.step import Done

Split = Literal["train", "validation", "evaluation"]
SetKey = tuple[str, str]
"""(split, set name)"""

MEMBERS = """
    SELECT set_name, prompt_id FROM prompt_sources
    WHERE fingerprint = $1 AND split = $2
    GROUP BY set_name, prompt_id ORDER BY set_name, min((source, row_index))
"""
COUNTS = """
    SELECT (SELECT count(*) FROM prompt_sources WHERE fingerprint = $1) AS n_sources,
           (SELECT count(*) FROM prompt_rejects WHERE fingerprint = $1) AS n_rejects
"""
GRADED_BY = "sum(md5_number_lower(concat_ws(chr(31), prompt_id, gold, verifier, verifier_args, extra)))"
"""One number for what the answers to a set of prompts are graded by, whatever the order."""
PROMPTS = f"""
    WITH members AS (
        SELECT prompt_id, min((set_name, source, row_index)) AS place FROM prompt_sources
        WHERE fingerprint = $1 AND split = $2 GROUP BY prompt_id
    )
    SELECT prompts.*, ({GRADED_BY} OVER ())::VARCHAR AS graded_by
    FROM members JOIN prompts USING (prompt_id) ORDER BY place
"""
SPLITS = f"""
    WITH members AS (SELECT DISTINCT split, prompt_id FROM prompt_sources WHERE fingerprint = $1)
    SELECT split, {GRADED_BY}::VARCHAR AS graded_by FROM members JOIN prompts USING (prompt_id) GROUP BY split
"""

# Rows of one write: some 100 MB of Arrow, and a transaction of seconds.
PIECE = 100_000


def ingest_data(
    warehouse: Warehouse, source: FileSource | DatasetSource, say: Callable[[str], None]
) -> tuple[PromptSet, bool]:
    """Read one data set into the warehouse, outside any run; also says whether it was all there already.

    `say` is told the format that was found before anything is written.
    """
    identity = json.dumps(["ingest_file", source_identity(source)])
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    warehouse.root.mkdir(parents=True, exist_ok=True)
    found = ingest([source], set_name="file", held_out=HeldOut(), say=say, scratch=warehouse.root)
    n_rejects = len(found.rejects)
    with one_ingest_at_a_time(warehouse.root):
        known = _counts(warehouse, fingerprint) == (found.n_rows - found.n_not_drawn - n_rejects, n_rejects)
        if not known:
            for tables in set_tables(("file", "file"), found):
                warehouse.write(tables, fingerprint=fingerprint)
            warehouse.publish()
    return found, known


def set_tables(key: SetKey, found: PromptSet) -> Iterator[dict[str, pa.Table]]:
    """Rows of prompts, prompt_rejects and prompt_sources, piece by piece.

    The same set gives the same rows, so that writing it again after a kill completes what was begun.
    """
    for table in _pieces(found.prompt_batches()):
        yield {"prompts": table}
    for table in _pieces(found.rejects.batches()):
        yield {"prompt_rejects": _labelled(table, key)}
    for table in _pieces(found.row_batches()):
        yield {"prompt_sources": _labelled(table, key)}


def load_prompts(warehouse: Warehouse, ingested: Done, split: Split) -> list[Prompt]:
    """All prompts of a split, each once, in the order of their first rows.

    Raises ValueError where they are no longer what was ingested: the warehouse has one gold for a prompt, the newest.
    """
    rows = warehouse.query(PROMPTS, [ingested.fingerprint, split]).to_pylist()
    if rows and rows[0]["graded_by"] != ingested.outputs["graded_by"][split]:
        raise ValueError(
            f"some {split} prompts have another gold, verifier or metadata than were ingested: meanwhile another run, "
            "or `rlsift ingest`, has read them from another data set; start the run again, and it ingests its own, or "
            "give the two a root each"
        )
    return [prompt_of(row) for row in rows]


def graded_by(warehouse: Warehouse, fingerprint: str) -> dict[str, str]:
    """By split, a number for what the answers to its prompts are graded by as the warehouse stands."""
    return {row["split"]: row["graded_by"] for row in warehouse.query(SPLITS, [fingerprint]).to_pylist()}


def set_members(warehouse: Warehouse, ingested: Done, split: Split) -> dict[str, list[str]]:
    """Prompt ids of each set of a split, in the order of their first rows."""
    members: dict[str, list[str]] = {}
    for row in warehouse.query(MEMBERS, [ingested.fingerprint, split]).to_pylist():
        members.setdefault(row["set_name"], []).append(row["prompt_id"])
    return members


def load_sets(warehouse: Warehouse, ingested: Done, split: Split) -> dict[str, list[Prompt]]:
    """The prompts of each set of a split, in the order of their first rows."""
    prompts = {prompt.prompt_id: prompt for prompt in load_prompts(warehouse, ingested, split)}
    return {name: [prompts[i] for i in ids] for name, ids in set_members(warehouse, ingested, split).items()}


def _counts(warehouse: Warehouse, fingerprint: str) -> tuple[int, int]:
    """How many rows of prompt_sources and prompt_rejects are there."""
    row = warehouse.query(COUNTS, [fingerprint]).to_pylist()[0]
    return row["n_sources"], row["n_rejects"]


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    piece: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        piece.append(batch)
        n_rows += batch.num_rows
        if n_rows >= PIECE:
            yield pa.Table.from_batches(piece)
            piece, n_rows = [], 0
    if piece:
        yield pa.Table.from_batches(piece)


def _labelled(table: pa.Table, key: SetKey) -> pa.Table:
    split, name = key
    return table.append_column("split", pa.repeat(split, len(table))).append_column(
        "set_name", pa.repeat(name, len(table))
    )
