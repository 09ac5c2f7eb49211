"""Contamination: prompts of the pool that ask what a validation or evaluation set asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline_lib.records import Message
from pipeline_lib.rewards.extract import fold


def question_key(messages: Sequence[Message], suffix: str) -> int:
    """The same for the same conversation, whatever its data source, its system prompt, and its white space.

    `suffix` is what the source has put behind the last user message. The key holds in this process alone.
    """
    turns = [(m["role"], m["content"]) for m in messages if m["role"] != "system"]
    return hash(tuple((role, fold(content.removesuffix(suffix))) for role, content in turns))


class HeldOut:
    """The questions of the sets that are held out."""

    def __init__(self) -> None:
        self._sets: dict[int, tuple[str, ...]] = {}

    def add(self, name: str, question_keys: Iterable[int]) -> None:
        for key in set(question_keys):
            self._sets[key] = (*self._sets.get(key, ()), name)

    def sets_of(self, question: int) -> tuple[str, ...]:
        """The names of the sets that ask it."""
        return self._sets.get(question, ())


def count_by_set(found: Iterable[Sequence[str]]) -> dict[str, int]:
    """How many prompts stand in each set; one that stands in two counts for both."""
    return dict(sorted(Counter(name for names in found for name in names).items()))
