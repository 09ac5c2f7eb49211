"""TRL: a `prompt` (text or messages) and a gold answer in ground_truth, answer or solution, which may be prose."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import Draft, Format, Row, first_filled, messages_of, source_of

GOLD_COLUMNS = ("ground_truth", "answer", "solution")


def _matches(columns: Collection[str]) -> bool:
    return "prompt" in columns and any(name in columns for name in GOLD_COLUMNS)


def _draft(row: Row, stem: str) -> Draft:
    return Draft(source_of(row, stem), messages_of(row.get("prompt")), first_filled(row, GOLD_COLUMNS))


FORMAT = Format(
    name="trl",
    wants="prompt, and one of ground_truth, answer, solution",
    matches=_matches,
    draft=_draft,
)
