"""HumanEval: a `prompt` with the head of a function, named by `entry_point`, and a `test` that defines its check."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import Draft, Format, Row, messages_of, source_of


def _matches(columns: Collection[str]) -> bool:
    return {"prompt", "test", "entry_point"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    tests = {name: row.get(name) for name in ("test", "entry_point")}
    return Draft(source_of(row, stem), messages_of(row.get("prompt")), tests, verifier="code")


FORMAT = Format(
    name="human_eval",
    wants="prompt, test, entry_point",
    matches=_matches,
    draft=_draft,
)
