"""Files of prompts for tests, and what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline_lib.config import FileSource, PromptSource, RowSource
from pipeline_lib.prompts.contamination import HeldOut
from pipeline_lib.prompts.files import open_rows
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.records import Prompt


def write(path: Path, rows: list[Any], end: bytes = b"\n") -> Path:
    """One line a row; bytes as they are."""
    path.write_bytes(end.join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def read(path: Path, **options: Any) -> list[Prompt | BadRow]:
    return read_source(FileSource(path=str(path), **options))


def read_source(source: RowSource) -> list[Prompt | BadRow]:
    return [row for _, row in open_rows(source).prompts]


def one(path: Path, **options: Any) -> Prompt:
    [prompt] = read(path, **options)
    assert isinstance(prompt, Prompt), prompt
    return prompt


def trl_file(path: Path, rows: list[tuple[str, str]]) -> FileSource:
    write(path, [{"prompt": prompt, "answer": answer, "source": "test"} for prompt, answer in rows])
    return FileSource(path=str(path))


def held_out_of(**sets: list[PromptSource]) -> HeldOut:
    held_out = HeldOut()
    for name, sources in sets.items():
        found = ingest(sources, set_name=name, held_out=HeldOut())
        held_out.add(name, (question for _, question in found.questions()))
    return held_out


def rows_of(found: PromptSet) -> list[dict[str, Any]]:
    return [row for batch in found.row_batches() for row in batch.to_pylist()]


def rejects_of(found: PromptSet) -> list[dict[str, Any]]:
    return [row for batch in found.rejects.batches() for row in batch.to_pylist()]
