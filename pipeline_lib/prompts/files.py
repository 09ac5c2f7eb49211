"""Prompts from rows: find the format by the first of them, then apply the options of the source to each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pipeline_lib.config import DatasetSource, RowSource
from pipeline_lib.prompts.formats import find_format
from pipeline_lib.prompts.hugging_face import read_dataset
from pipeline_lib.prompts.readers import Rows, read_rows, stem_of
from pipeline_lib.prompts.rows import BadRow, Draft, Format, Opened, gold_of, json_safe
from pipeline_lib.records import Message, Prompt
from pipeline_lib.rewards.extract import after_marker, boxed, first_line

# Around the whole of it: of $3$ or $5$ none may go.
_DOLLARS = re.compile(r"\${1,2}((?:\\\$|[^$])*)\${1,2}")

# The first row may lack an optional column, or be broken.
ROWS_TO_SEE_COLUMNS = 100


def open_rows(source: RowSource) -> Opened:
    """Read the first rows of `source` and find its format. ValueError where there is none, or more than one."""
    path = Path(source.path)
    if isinstance(source, DatasetSource):
        rows, stem = read_dataset(source), path.name
    else:
        rows, stem = read_rows(path), stem_of(path)
    head = list(islice(rows, ROWS_TO_SEE_COLUMNS))
    readable = [row for _, row in head if not isinstance(row, BadRow)]
    if not readable and len(head) == ROWS_TO_SEE_COLUMNS:
        raise ValueError(
            f"{source.path}: none of the first {len(head)} rows is readable. Row {head[0][0]}: {head[0][1]}"
        )
    form = find_format(source, readable) if readable else None
    read_as = f"{form.name} ({form.wants})" if form else "rows of no format: not one is readable"
    return Opened(read_as, _prompts(source, form, stem, chain(head, rows)))


def _prompts(source: RowSource, form: Format | None, stem: str, rows: Rows) -> Iterator[tuple[int, Prompt | BadRow]]:
    for index, row in rows:
        if form is None or isinstance(row, BadRow):
            assert isinstance(row, BadRow)
            yield index, row
            continue
        try:
            yield index, _prompt(source, form.draft(row, stem))
        except BadRow as bad:
            yield index, bad


def _prompt(source: RowSource, draft: Draft) -> Prompt:
    verifier = draft.verifier if source.verifier == "auto" else source.verifier
    if verifier is None:
        raise BadRow("no_verifier", f"{draft.data_source}: not an answer to check by rule; name a `verifier`")
    return Prompt(
        data_source=draft.data_source,
        messages=_with_suffix(draft.messages, source.suffix) if source.suffix else draft.messages,
        gold=_gold(draft.gold, verifier),
        verifier=verifier,
        extra=draft.extra,
    )


def _gold(value: Any, verifier: str) -> str:
    if verifier == "code":
        return gold_of(_tests(value))
    return gold_of(value) if verifier == "exact" else final_answer(gold_of(value))


def _tests(value: Any) -> Any:
    """Lists and objects as JSON; a list of one text may hold that JSON already, as open-instruct writes it."""
    first = value[0] if isinstance(value, list) and len(value) == 1 else None
    if isinstance(first, str) and first.lstrip().startswith(("[", "{")):
        return first
    return json.dumps(json_safe(value)) if isinstance(value, list | dict) else value


def final_answer(gold: str) -> str:
    r"""The bare answer of a gold text: in its last box, after its last ####, without enclosing $ signs."""
    if gold.isalnum():
        return gold
    answer = boxed(gold)
    if answer is None and (marked := after_marker(gold, "####")) is not None:
        answer = first_line(marked)
    if answer is None:
        answer = gold
    if (bare := _DOLLARS.fullmatch(answer)) is not None:
        answer = bare[1].strip()
    if not answer:
        raise BadRow("unparseable_gold", r"its last \boxed{ is empty or never closed, or nothing follows its ####")
    return answer


def _with_suffix(messages: tuple[Message, ...], suffix: str) -> tuple[Message, ...]:
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    message: Message = {"role": "user", "content": messages[last]["content"] + suffix}
    return (*messages[:last], message, *messages[last + 1 :])
