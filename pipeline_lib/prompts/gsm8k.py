"""GSM8K: `question`, and an `answer` whose gold stands after the last `####`."""

from __future__ import annotations

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, gold_of, messages_of, short
from pipeline_lib.rewards.extract import after_marker


def _draft(row: Row, stem: str) -> Draft:
    messages = messages_of(row.get("question"))
    answer = gold_of(row.get("answer"))
    gold = after_marker(answer, "####")
    if not gold:
        raise BadRow("no_gold", f"nothing after #### in the answer {short(answer)}")
    return Draft("gsm8k", messages, gold.replace(",", "").replace("$", "").strip())


FORMAT = Format(
    name="gsm8k",
    wants="question, answer (the gold after ####)",
    matches=lambda columns: {"question", "answer"} <= set(columns),
    draft=_draft,
)
