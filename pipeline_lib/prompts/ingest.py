"""Ingest one set: read its sources, merge duplicates, leave out what cannot be graded, and list all that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from pipeline_lib.config import FileSource, PromptSource
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.prompts.sources import read_source, source_name
from pipeline_lib.records import Prompt
from pipeline_lib.rewards import get_verifier


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source, and the prompt it became or was merged into."""

    source: str
    row_index: int
    prompt_id: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that was left out."""

    source: str
    row_index: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class IngestResult:
    prompts: dict[str, Prompt]
    """By prompt id, in the order of their first rows."""
    rows: list[SourceRow]
    rejects: list[Reject]
    n_not_drawn: int
    """Good rows whose prompt a source's `limit` did not draw."""

    @property
    def n_rows(self) -> int:
        return len(self.rows) + len(self.rejects) + self.n_not_drawn

    @property
    def n_prompts(self) -> int:
        return len(self.prompts)

    @property
    def n_duplicates(self) -> int:
        return len(self.rows) - len(self.prompts)

    @property
    def reject_counts(self) -> dict[str, int]:
        return dict(Counter(reject.reason for reject in self.rejects).most_common())


def ingest(sources: Sequence[PromptSource], *, set_name: str, exclude: Collection[str] = ()) -> IngestResult:
    """The prompts of one set. Prompts whose id is in `exclude` are rejected: they stand in another set.

    Sources are labelled by position and name, such as `0:train.jsonl`. Raises ValueError, with the counts by
    reason, when no prompt is left.
    """
    prompts: dict[str, Prompt] = {}
    golds: dict[str, dict[str, str]] = {}  # the golds of a prompt: normalised -> as written
    rows: list[SourceRow] = []
    rejects: list[Reject] = []
    labels = [f"{position}:{source_name(source)}" for position, source in enumerate(sources)]
    for label, source in zip(labels, sources, strict=True):
        for index, row in read_source(source):
            if isinstance(row, BadRow):
                rejects.append(Reject(label, index, row.reason, row.detail))
                continue
            prompt_id = row.prompt_id
            verifier = get_verifier(row.verifier)
            gold = verifier.normal_gold(row.gold)
            seen = golds.get(prompt_id, {})
            if gold not in seen:
                problem = verifier.gold_problem(row)
                if problem is not None:
                    rejects.append(Reject(label, index, "unparseable_gold", problem))
                    continue
                golds[prompt_id] = {**seen, gold: row.gold}
            prompts.setdefault(prompt_id, row)
            rows.append(SourceRow(label, index, prompt_id))

    dropped = _conflicts(golds)
    dropped |= {
        prompt_id: ("in_validation_or_evaluation_set", f"prompt {prompt_id} is held out in another set")
        for prompt_id in prompts
        if prompt_id in exclude
    }
    good = [row for row in rows if row.prompt_id not in dropped]
    rejects += [Reject(row.source, row.row_index, *dropped[row.prompt_id]) for row in rows if row.prompt_id in dropped]
    drawn: set[str] = set()
    for label, source in zip(labels, sources, strict=True):
        drawn |= _draw(source, dict.fromkeys(row.prompt_id for row in good if row.source == label))

    kept = [row for row in good if row.prompt_id in drawn]
    result = IngestResult(
        prompts={prompt_id: prompt for prompt_id, prompt in prompts.items() if prompt_id in drawn},
        rows=kept,
        rejects=rejects,
        n_not_drawn=len(good) - len(kept),
    )
    if not result.prompts:
        counts = ", ".join(f"{reason} {count}" for reason, count in result.reject_counts.items())
        raise ValueError(
            f"set {set_name!r}: no prompt is left of {result.n_rows} rows from {', '.join(labels)}"
            f" (left out: {counts or 'none'}); look at these sources, or choose others"
        )
    return result


def _conflicts(golds: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    return {
        prompt_id: (
            "conflicting_gold",
            f"prompt {prompt_id} has the golds {', '.join(map(repr, found.values()))}",
        )
        for prompt_id, found in golds.items()
        if len(found) > 1
    }


def _draw(source: PromptSource, prompt_ids: Collection[str]) -> set[str]:
    """The prompts a source gives to the set: `limit` of them by its seed, or all."""
    if not isinstance(source, FileSource) or source.limit is None or source.limit >= len(prompt_ids):
        return set(prompt_ids)
    return set(Random(source.seed).sample(list(prompt_ids), source.limit))
