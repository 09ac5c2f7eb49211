"""Prompts from a file: find its format by its columns, then apply the options of the source to each row."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path

from pipeline_lib.config import FileSource
from pipeline_lib.prompts import FORMATS
from pipeline_lib.prompts.readers import read_rows
from pipeline_lib.prompts.rows import BadRow, Draft, Format
from pipeline_lib.records import Message, Prompt
from pipeline_lib.rewards.extract import after_marker, boxed

# The first row may lack an optional column, or be broken.
ROWS_TO_SEE_COLUMNS = 100


def read_file(source: FileSource) -> Iterator[tuple[int, Prompt | BadRow]]:
    """Each row's index with its prompt, or with the reason why it has none. `limit` is ingest's affair."""
    path = Path(source.path)
    rows = read_rows(path)
    head = list(islice(rows, ROWS_TO_SEE_COLUMNS))
    columns = {name for _, row in head if not isinstance(row, BadRow) for name in row}
    form = find_format(source, columns) if columns else None
    for index, row in chain(head, rows):
        if isinstance(row, BadRow):
            yield index, row
            continue
        form = form or find_format(source, row.keys())
        try:
            yield index, _prompt(source, form.draft(row, path.stem))
        except BadRow as bad:
            yield index, bad


def find_format(source: FileSource, columns: Collection[str]) -> Format:
    """The format asked for, or the first that matches; ValueError lists columns found and wanted."""
    wanted = FORMATS if source.format == "auto" else {source.format: FORMATS[source.format]}
    for form in wanted.values():
        if form.matches(columns):
            return form
    known = "\n".join(f"  {form.name}: {form.wants}" for form in wanted.values())
    raise ValueError(
        f"{source.path}: unknown schema. Columns found: {', '.join(sorted(columns))}.\n"
        f"Rename them to those that one of these formats wants:\n{known}"
    )


def _prompt(source: FileSource, draft: Draft) -> Prompt:
    verifier = draft.verifier if source.verifier == "auto" else source.verifier
    if verifier is None:
        raise BadRow("no_verifier", f"{draft.data_source}: not an answer to check by rule; name a `verifier`")
    return Prompt(
        data_source=draft.data_source,
        messages=_with_suffix(draft.messages, source.suffix),
        gold=draft.gold if verifier in ("exact", "code") else final_answer(draft.gold),
        verifier=verifier,
        extra=draft.extra,
    )


def final_answer(gold: str) -> str:
    r"""The bare answer of a gold text: in its last box, after its last ####, without enclosing $ signs."""
    answer = boxed(gold)
    if answer is None:
        answer = after_marker(gold, "####")
    if answer is None:
        answer = gold
    if answer.startswith("$") and answer.endswith("$"):
        answer = answer.strip("$").strip()
    if not answer:
        raise BadRow("unparseable_gold", r"its last \boxed{ is empty or never closed, or nothing follows its ####")
    return answer


def _with_suffix(messages: tuple[Message, ...], suffix: str) -> tuple[Message, ...]:
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    message: Message = {"role": "user", "content": messages[last]["content"] + suffix}
    return (*messages[:last], message, *messages[last + 1 :])
