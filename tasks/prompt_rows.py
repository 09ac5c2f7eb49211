"""Prompts in the warehouse: the rows that an ingest writes, and reading them back. Light: neither torch nor Prefect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pipeline_lib.config import FileSource
from pipeline_lib.prompts.ingest import IngestResult, ingest
from pipeline_lib.prompts.sources import source_identity
from pipeline_lib.records import Prompt
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
PROMPTS = """
    WITH members AS (
        SELECT prompt_id, min((set_name, source, row_index)) AS place FROM prompt_sources
        WHERE fingerprint = $1 AND split = $2 GROUP BY prompt_id
    )
    SELECT prompts.* FROM members JOIN prompts USING (prompt_id) ORDER BY place
"""

PROMPTS_SCHEMA = pa.schema(
    [(n, pa.string()) for n in ("prompt_id", "data_source", "messages", "gold", "verifier")]
    + [("verifier_args", pa.string()), ("extra", pa.string())]
)
SOURCES_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("set_name", pa.string()),
        ("source", pa.string()),
        ("row_index", pa.int64()),
        ("prompt_id", pa.string()),
    ]
)
REJECTS_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("set_name", pa.string()),
        ("source", pa.string()),
        ("row_index", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


def ingest_file(warehouse: Warehouse, source: FileSource) -> tuple[IngestResult, bool]:
    """Read one data set into the warehouse, outside any run; also says whether it was there already."""
    identity = json.dumps(["ingest_file", source_identity(source)])
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    result = ingest([source], set_name="file")
    known = warehouse.query("SELECT 1 FROM prompt_sources WHERE fingerprint = $1 LIMIT 1", [fingerprint])
    warehouse.write(ingest_tables({("file", "file"): result}), fingerprint=fingerprint)
    warehouse.publish()
    return result, known.num_rows > 0


def ingest_tables(results: dict[SetKey, IngestResult]) -> dict[str, pa.Table]:
    """Rows of prompts, prompt_sources and prompt_rejects."""
    prompts = {prompt_id: p for result in results.values() for prompt_id, p in result.prompts.items()}

    def labelled(rows: Iterable[tuple[SetKey, Any]]) -> Iterator[dict[str, Any]]:
        return ({"split": split, "set_name": name} | asdict(row) for (split, name), row in rows)

    sources = labelled((key, row) for key, result in results.items() for row in result.rows)
    rejects = labelled((key, row) for key, result in results.items() for row in result.rejects)
    return {
        "prompts": pa.Table.from_pylist([_prompt_row(i, p) for i, p in prompts.items()], PROMPTS_SCHEMA),
        "prompt_sources": pa.Table.from_pylist(list(sources), SOURCES_SCHEMA),
        "prompt_rejects": pa.Table.from_pylist(list(rejects), REJECTS_SCHEMA),
    }


def load_prompts(warehouse: Warehouse, ingested: Done, split: Split) -> list[Prompt]:
    """All prompts of a split, each once, in the order of their first rows."""
    rows = warehouse.query(PROMPTS, [ingested.fingerprint, split]).to_pylist()
    return [
        Prompt(
            data_source=row["data_source"],
            messages=tuple(json.loads(row["messages"])),
            gold=row["gold"],
            verifier=row["verifier"],
            verifier_args=json.loads(row["verifier_args"]),
            extra=json.loads(row["extra"]),
        )
        for row in rows
    ]


def set_members(warehouse: Warehouse, ingested: Done, split: Split) -> dict[str, list[str]]:
    """Prompt ids of each set of a split, in the order of their first rows."""
    members: dict[str, list[str]] = {}
    for row in warehouse.query(MEMBERS, [ingested.fingerprint, split]).to_pylist():
        members.setdefault(row["set_name"], []).append(row["prompt_id"])
    return members


def _prompt_row(prompt_id: str, prompt: Prompt) -> dict[str, str]:
    return {
        "prompt_id": prompt_id,
        "data_source": prompt.data_source,
        "messages": json.dumps(prompt.messages, ensure_ascii=False),
        "gold": prompt.gold,
        "verifier": prompt.verifier,
        "verifier_args": json.dumps(dict(prompt.verifier_args), ensure_ascii=False),
        "extra": json.dumps(dict(prompt.extra), ensure_ascii=False),
    }
