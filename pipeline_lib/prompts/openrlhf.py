"""OpenRLHF: `input` (its recipes: `prompt`) and `label`; `datasource` names the data source."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import Draft, Format, Row, messages_of, source_of


def _matches(columns: Collection[str]) -> bool:
    return "label" in columns and ("input" in columns) != ("prompt" in columns)


def _draft(row: Row, stem: str) -> Draft:
    question = row["input"] if "input" in row else row.get("prompt")
    return Draft(source_of(row, stem), messages_of(question), row.get("label"))


FORMAT = Format(
    name="openrlhf",
    wants="input (or prompt), label",
    matches=_matches,
    draft=_draft,
)
