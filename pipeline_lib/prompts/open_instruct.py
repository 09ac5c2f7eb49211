"""open-instruct: `messages`, `ground_truth`, and in `dataset` the verifier that is meant to grade."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, conversation_in, messages_of, short, source_of

MATH_VERIFIERS = {"gsm8k", "math", "strict_math", "strictmath"}


def _matches(columns: Collection[str]) -> bool:
    return {"messages", "ground_truth"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    dataset = _only(row.get("dataset"))
    source = dataset if isinstance(dataset, str) and dataset else source_of(row, stem)
    messages = row.get("messages")
    if isinstance(messages, str):
        messages = conversation_in(messages)
        if messages is None:
            raise BadRow("no_prompt", f"messages must be a list, or one as JSON, found {short(row['messages'])}")
    known = not isinstance(dataset, str) or dataset.lower() in MATH_VERIFIERS
    return Draft(
        data_source=source,
        messages=messages_of(messages),
        gold=row.get("ground_truth"),
        verifier="math" if known else None,
    )


def _only(value: Any) -> Any:
    """The one entry of a list of one: open-instruct writes both forms."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


FORMAT = Format(
    name="open_instruct",
    wants="messages, ground_truth",
    matches=_matches,
    draft=_draft,
)
