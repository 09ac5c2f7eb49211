"""TRL: a `prompt` (text or messages) and a gold answer in solution, ground_truth or answer."""

from __future__ import annotations

from pipeline_lib.prompts.rows import Draft, Format, Row, gold_of, messages_of, utf8

GOLD_COLUMNS = ("solution", "ground_truth", "answer")
SOURCE_COLUMNS = ("data_source", "dataset", "source")


def _draft(row: Row, stem: str) -> Draft:
    gold = next((row[name] for name in GOLD_COLUMNS if row.get(name) is not None), None)
    named = (row.get(name) for name in SOURCE_COLUMNS)
    source = next((name for name in named if isinstance(name, str) and name), stem)
    return Draft(utf8(source), messages_of(row.get("prompt")), gold_of(gold))


FORMAT = Format(
    name="trl",
    wants="prompt, and one of solution, ground_truth, answer",
    matches=lambda columns: "prompt" in columns and any(name in columns for name in GOLD_COLUMNS),
    draft=_draft,
)
