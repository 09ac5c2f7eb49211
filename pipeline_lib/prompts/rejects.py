"""Rows that were left out: where each stood, why, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from pipeline_lib.prompts.spill import Spill

BATCH = 8192

REJECTS_SCHEMA = pa.schema(
    [("source", pa.string()), ("row_index", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)

REMEDIES = {
    "not_utf8": "write the file anew as UTF-8",
    "not_json": "each line must be one JSON object; write the row anew",
    "not_csv": "quote values that hold commas, quotes or line ends",
    "not_object": "each row must be an object of named columns",
    "no_prompt": "fill the prompt in, or name the column that holds it with --map prompt=...",
    "no_gold": "fill the gold answer in, or name the column that holds it with --map gold=...",
    "no_data_source": "fill data_source in",
    "no_verifier": "name a `verifier` for the source if the gold can be checked by rule",
    "unparseable_gold": "correct the gold, or choose the verifier `exact`",
    "conflicting_gold": "keep the right one of the golds",
    "in_validation_or_evaluation_set": "leave it so, or set prompts.contamination to report",
    "prompt_too_long": "shorten it, or raise generation.max_prompt_tokens",
}


class Rejects:
    """All rows that were left out, on disk but for the last few."""

    def __init__(self, directory: Path | None) -> None:
        self.counts: Counter[str] = Counter()
        self._spill = Spill(REJECTS_SCHEMA, directory)
        self._waiting: list[tuple[str, int, str, str]] = []

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Rows of (source, row_index, reason, detail)."""
        for row in rows:
            self._waiting.append(row)
            self.counts[row[2]] += 1
            if len(self._waiting) == BATCH:
                self._spill.add(self._waiting_batch())
                self._waiting = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the order in which they were added."""
        yield from self._spill
        if self._waiting:
            yield self._waiting_batch()

    def _waiting_batch(self) -> pa.RecordBatch:
        columns = zip(*self._waiting, strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, REJECTS_SCHEMA, strict=True)],
            schema=REJECTS_SCHEMA,
        )
