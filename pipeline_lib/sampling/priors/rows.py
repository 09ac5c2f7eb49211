"""What a prior learns from: how often a prompt's text was answered rightly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline_lib.records import Prompt


class Text(NamedTuple):
    """What is known of a prompt before any rollout. `prompt_id` tells prompts apart and is no feature."""

    prompt_id: str
    data_source: str
    text: str


class Row(NamedTuple):
    """A text with `n` graded completions, `n_correct` of them right (see `Observation.n_high` for partial credit)."""

    text: Text
    n: int
    n_correct: int


def text_of(prompt: Prompt) -> Text:
    """The last message alone: system prompt and solved examples are the same for many prompts."""
    return Text(prompt.prompt_id, prompt.data_source, prompt.messages[-1]["content"])


def one_row_a_prompt(rows: Iterable[Row]) -> list[Row]:
    """Counts of one prompt added up, so that no prompt can be on both sides of a fold."""
    merged: dict[str, Row] = {}
    for row in rows:
        before = merged.get(row.text.prompt_id, Row(row.text, 0, 0))
        merged[row.text.prompt_id] = Row(row.text, before.n + row.n, before.n_correct + row.n_correct)
    return [row for row in merged.values() if row.n > 0]


def counts_of(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(n_N, n_correct_N), float64."""
    return np.array([row.n for row in rows], float), np.array([row.n_correct for row in rows], float)
