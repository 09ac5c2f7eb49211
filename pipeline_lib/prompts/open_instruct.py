"""open-instruct: `messages`, `ground_truth`, and in `dataset` the verifier that is meant to grade."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, gold_of, messages_of, short, source_of
from pipeline_lib.records import Message

MATH_VERIFIERS = {"gsm8k", "math", "strict_math", "strictmath"}


def _matches(columns: Collection[str]) -> bool:
    return {"messages", "ground_truth"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    dataset = _only(row.get("dataset"))
    source = dataset if isinstance(dataset, str) and dataset else source_of(row, stem)
    known = not isinstance(dataset, str) or dataset.lower() in MATH_VERIFIERS
    return Draft(
        data_source=source,
        messages=_question(row.get("messages")),
        gold=gold_of(_only(row.get("ground_truth"))),
        verifier="math" if known else None,
    )


def _question(value: Any) -> tuple[Message, ...]:
    """The conversation up to its last user turn: what the assistant says after that is an answer to it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadRow("no_prompt", f"messages must be a list, or one as JSON: {error} in {short(value)}") from None
    messages = messages_of(value)
    return messages[: 1 + max(i for i, message in enumerate(messages) if message["role"] == "user")]


def _only(value: Any) -> Any:
    """The one entry of a list of one: open-instruct writes both forms."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


FORMAT = Format(
    name="open_instruct",
    wants="messages, ground_truth",
    matches=_matches,
    draft=_draft,
)
