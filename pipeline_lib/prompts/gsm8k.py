"""GSM8K: `question`, and an `answer` whose gold stands after the last `####`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, gold_of, messages_of, short, source_of
from pipeline_lib.rewards.extract import after_marker, first_line

MARKER = "####"
_NUMBER = re.compile(r"[-+]?\$?[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?\$?")


def has_marker(rows: Sequence[Row]) -> bool:
    """Whether an answer of the first rows has the marker: plain question/answer files have the same columns."""
    return any(MARKER in row["answer"] for row in rows if isinstance(row.get("answer"), str))


def _matches(columns: Collection[str]) -> bool:
    return {"question", "answer"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    messages = messages_of(row.get("question"))
    answer = gold_of(row.get("answer"))
    gold = first_line((after_marker(answer, MARKER) or "").removeprefix(":"))
    if _NUMBER.fullmatch(gold):
        gold = gold.replace(",", "").replace("$", "")
    if not gold:
        raise BadRow("no_gold", f"nothing after {MARKER} in the answer {short(answer)}")
    return Draft(source_of(row, "gsm8k"), messages, gold)


FORMAT = Format(
    name="gsm8k",
    wants=f"question, answer (the gold after {MARKER})",
    matches=_matches,
    draft=_draft,
    fits=has_marker,
)
