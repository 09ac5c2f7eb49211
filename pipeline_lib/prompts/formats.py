"""Which format a file has: the one asked for, the user's own, or the one that its columns show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline_lib.config import RowSource
from pipeline_lib.prompts import FORMATS
from pipeline_lib.prompts.mapped import mapped_format
from pipeline_lib.prompts.rows import Format, Row

MAP = "say which to read: `columns: {prompt: NAME, gold: NAME}` in a config, --map prompt=NAME,gold=NAME of `ingest`"


def find_format(source: RowSource, head: Sequence[Row]) -> Format:
    """The format of `source`, found from its first rows.

    Raises ValueError, with the columns found and those wanted, where none fits or more than one does.
    """
    columns = {name for row in head for name in row}
    found = f"{source.path}: columns found: {', '.join(sorted(columns))}.\n"
    form = _chosen(source)
    if form is not None:
        if not form.matches(columns):
            raise ValueError(f"{found}The format {form.name} wants {form.wants}. Name another format, or {MAP}.")
        return form
    fitting = [form for form in FORMATS.values() if form.matches(columns) and form.fits(head)]
    if not fitting:
        raise ValueError(
            f"{found}No format is known that has them. One of these is wanted:\n{_listed(FORMATS.values())}\n"
            f"Rename the columns, or {MAP}."
        )
    if len(fitting) > 1 and not fitting[0].unmistakable:
        raise ValueError(
            f"{found}More than one format has them:\n{_listed(fitting)}\n"
            f"Name the one to read (`format: {fitting[0].name}`, --format {fitting[0].name}), or {MAP}."
        )
    return fitting[0]


def _chosen(source: RowSource) -> Format | None:
    if source.columns is not None:
        return mapped_format(source.columns)
    return None if source.format == "auto" else FORMATS[source.format]


def _listed(formats: Iterable[Format]) -> str:
    return "\n".join(f"  {form.name}: {form.wants}" for form in formats)
