"""What an ingest has made of the sources of one set: its prompts, its rows, and the rows that were left out.

Memory holds 20 bytes a row and 24 a prompt; texts lie on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_lib.prompts.arrow import PROMPTS_SCHEMA, prompt_of
from pipeline_lib.prompts.keys import Keys, contains, ids_of
from pipeline_lib.prompts.rejects import Rejects
from pipeline_lib.prompts.spill import Spill
from pipeline_lib.records import Prompt

ROWS_BATCH = 65_536
ROWS_SCHEMA = pa.schema([("source", pa.string()), ("row_index", pa.int64()), ("prompt_id", pa.string())])


class PromptSet:
    """Rows are added batch by batch; then prompts are left out or drawn; then what is left is written."""

    def __init__(self, labels: Sequence[str], directory: Path | None) -> None:
        self.rejects = Rejects(directory)
        self.n_not_drawn = 0
        """Good rows whose prompt a source's `limit` did not draw."""
        self._labels = labels
        self._texts = Spill(PROMPTS_SCHEMA, directory)
        self._text_keys: list[Keys] = []  # of the prompts in each batch of _texts
        self._questions: list[NDArray[np.int64]] = []  # likewise, where they are asked for
        self.contamination: dict[str, int] = {}
        """How many prompts stand in each of the held-out sets that were named."""
        self._added: list[tuple[int, NDArray[np.int64], Keys]] = []

    def reject(self, source: int, rows: Iterable[tuple[int, str, str]]) -> None:
        """Bad rows of the source of that number: (row_index, reason, detail)."""
        self.rejects.add((self._labels[source], *row) for row in rows)

    def add_rows(self, source: int, row_indices: NDArray[np.int64], prompts: Keys) -> None:
        """Good rows of the source of that number."""
        self._added.append((source, row_indices, prompts))

    def add_texts(self, prompts: pa.RecordBatch, keys: Keys) -> None:
        """Prompts that no row before has given with this gold."""
        self._texts.add(prompts)
        self._text_keys.append(keys)

    def add_questions(self, question_keys: Sequence[int]) -> None:
        """Of the prompts whose texts were added last."""
        self._questions.append(np.array(question_keys, np.int64))

    def finish(self) -> None:
        """All rows are added."""
        counts = [len(keys) for _, _, keys in self._added]
        self._source = np.repeat([source for source, _, _ in self._added], counts).astype(np.int32)
        self._row_index = np.concatenate([np.empty(0, np.int64), *(indices for _, indices, _ in self._added)])
        self._prompt = np.concatenate([np.empty(0, np.uint64), *(keys for _, _, keys in self._added)])
        self._added = []

    @property
    def n_rows(self) -> int:
        return len(self._prompt) + len(self.rejects) + self.n_not_drawn

    @property
    def n_prompts(self) -> int:
        return len(self._kept)

    @property
    def n_duplicates(self) -> int:
        return len(self._prompt) - len(self._kept)

    @property
    def reject_counts(self) -> dict[str, int]:
        return dict(self.rejects.counts.most_common())

    @property
    def prompts(self) -> dict[str, Prompt]:
        """All of them in memory, by prompt id, in the order of their first rows."""
        rows = (row for batch in self.prompt_batches() for row in batch.to_pylist())
        return {row["prompt_id"]: prompt_of(row) for row in rows}

    def prompt_batches(self) -> Iterator[pa.RecordBatch]:
        """The prompts, each once, in the order of their first rows."""
        for keys, batch in zip(self._text_keys, self._texts, strict=True):
            kept = batch.filter(pa.array(contains(self._kept, keys)))
            if kept.num_rows:
                yield kept

    def row_batches(self) -> Iterator[pa.RecordBatch]:
        """(source, row_index, prompt_id) of each row that gave a prompt or was merged into one."""
        for start in range(0, len(self._prompt), ROWS_BATCH):
            part = slice(start, start + ROWS_BATCH)
            sources = pa.array(self._labels, pa.string()).take(pa.array(self._source[part]))
            columns = [sources, pa.array(self._row_index[part]), ids_of(self._prompt[part])]
            yield pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA)

    def golds_of_conflicts(self) -> dict[int, list[str]]:
        """The golds of each prompt that has more than one, as written, in the order of their rows."""
        unique, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *self._text_keys]), return_counts=True)
        several = unique[counts > 1]
        golds: dict[int, list[str]] = {key: [] for key in several.tolist()}
        if golds:
            for keys, batch in zip(self._text_keys, self._texts, strict=True):
                for i in np.flatnonzero(contains(several, keys)).tolist():
                    golds[int(keys[i])].append(batch["gold"][i].as_py())
        return golds

    def questions(self) -> Iterator[tuple[int, int]]:
        """(key, question key) of each prompt."""
        for keys, questions in zip(self._text_keys, self._questions, strict=True):
            kept = contains(self._kept, keys)
            yield from zip(keys[kept].tolist(), questions[kept].tolist(), strict=True)

    @property
    def n_asked_again(self) -> int:
        """Prompts that ask what another one of the set asks, but for white space, system prompt or data source.

        They are prompts of their own, as their messages differ. 0 where questions are not known.
        """
        if not self._questions:
            return 0
        questions = np.fromiter((question for _, question in self.questions()), np.int64)
        return len(questions) - len(np.unique(questions))

    def leave_out(self, reason: str, details: Mapping[int, str]) -> None:
        """Take the prompts of these keys out, with all their rows, which become rejects."""
        if not details:
            return
        gone = contains(np.sort(np.fromiter(details, np.uint64, len(details))), self._prompt)
        places = zip(
            self._source[gone].tolist(), self._row_index[gone].tolist(), self._prompt[gone].tolist(), strict=True
        )
        self.rejects.add((self._labels[source], index, reason, details[key]) for source, index, key in places)
        self._keep(~gone)

    def draw(self, limits: Sequence[tuple[int | None, int]]) -> None:
        """Of each source's prompts keep (limit, seed): all, or so many. A prompt that any of them keeps stays."""
        if all(limit is None for limit, _ in limits):
            return
        drawn = [
            _sample(self._prompt[self._source == source], limit, seed) for source, (limit, seed) in enumerate(limits)
        ]
        kept = contains(np.unique(np.concatenate(drawn)), self._prompt)
        self.n_not_drawn += int((~kept).sum())
        self._keep(kept)

    @cached_property
    def _kept(self) -> Keys:
        return np.unique(self._prompt)

    def _keep(self, rows: NDArray[np.bool_]) -> None:
        self._source, self._row_index, self._prompt = self._source[rows], self._row_index[rows], self._prompt[rows]
        self.__dict__.pop("_kept", None)


def _sample(prompts: Keys, limit: int | None, seed: int) -> Keys:
    unique, first = np.unique(prompts, return_index=True)
    if limit is None or limit >= len(unique):
        return unique
    in_order = prompts[np.sort(first)]
    return in_order[Random(seed).sample(range(len(in_order)), limit)]
