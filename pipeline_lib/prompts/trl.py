"""TRL: a `prompt` (text or messages) and a gold answer in solution, ground_truth or answer."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import Draft, Format, Row, gold_of, messages_of, source_of

GOLD_COLUMNS = ("solution", "ground_truth", "answer")


def _matches(columns: Collection[str]) -> bool:
    return "prompt" in columns and any(name in columns for name in GOLD_COLUMNS)


def _draft(row: Row, stem: str) -> Draft:
    gold = next((row[name] for name in GOLD_COLUMNS if row.get(name) is not None), None)
    return Draft(source_of(row, stem), messages_of(row.get("prompt")), gold_of(gold))


FORMAT = Format(
    name="trl",
    wants="prompt, and one of solution, ground_truth, answer",
    matches=_matches,
    draft=_draft,
)
