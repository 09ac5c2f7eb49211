"""The keys in which the configs of two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipeline_lib.report.pair.data import PairData

ABSENT = "–"
"""In place of a key that one config does not have."""
OF_EVERY_RUN = ("name",)
"""Keys that say nothing of how a run was made."""


def config_difference(pair: PairData) -> list[tuple[str, str, str]]:
    """(key, value of ours, value of theirs), in the order of the keys."""
    ours, theirs = (dict(flatten(json.loads(side.run.to_pylist()[0]["config"] or "{}"))) for side in pair.sides)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return [
        (key, ours.get(key, ABSENT), theirs.get(key, ABSENT))
        for key in keys
        if ours.get(key) != theirs.get(key) and key not in OF_EVERY_RUN
    ]


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, JSON of the value) of every leaf; the members of a list are numbered from 0."""
    if isinstance(value, dict | list) and value:
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flatten(member, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
