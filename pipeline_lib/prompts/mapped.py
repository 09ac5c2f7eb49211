"""Files of any other form: which column holds the prompt, which the gold, is said by the user."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pipeline_lib.config import Columns
from pipeline_lib.prompts.rows import Draft, Format, Row, messages_of, source_of, utf8


def mapped_format(columns: Columns) -> Format:
    """A format of the user's own. A name with dots leads into objects and lists, as in `answers.text.0`."""

    def draft(row: Row, stem: str) -> Draft:
        named = _at(row, columns.source) if columns.source else None
        source = utf8(named) if isinstance(named, str) and named else source_of(row, stem)
        return Draft(source, messages_of(_at(row, columns.prompt)), _at(row, columns.gold))

    names = [name for name in (columns.prompt, columns.gold, columns.source) if name is not None]
    return Format(
        name="mapped",
        wants=", ".join(names),
        matches=lambda found: all(_stands_in(name, found) for name in names),
        draft=draft,
    )


def _stands_in(name: str, columns: Collection[str]) -> bool:
    return name in columns or name.partition(".")[0] in columns


def _at(row: Row, name: str) -> Any:
    """The value at `name`; None where there is none. A column that has the dots in its own name comes first."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value
