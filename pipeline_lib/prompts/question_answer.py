"""Plain questions: `question`, and an `answer` that is the gold itself."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.gsm8k import has_marker
from pipeline_lib.prompts.rows import Draft, Format, Row, messages_of, source_of


def _matches(columns: Collection[str]) -> bool:
    return {"question", "answer"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    return Draft(source_of(row, stem), messages_of(row.get("question")), row.get("answer"))


FORMAT = Format(
    name="question_answer",
    wants="question, answer (the gold itself, no ####)",
    matches=_matches,
    draft=_draft,
    fits=lambda head: not has_marker(head),
)
