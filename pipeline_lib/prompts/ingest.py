"""Ingest one set: read its sources, merge duplicates, leave out what cannot be graded, and list all that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from pipeline_lib.config import PromptSource, RowSource
from pipeline_lib.prompts.arrow import prompts_batch
from pipeline_lib.prompts.contamination import HeldOut, count_by_set, question_key
from pipeline_lib.prompts.keys import SeenKeys, ids_of, keys_of
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.prompts.sources import open_source, source_name
from pipeline_lib.records import Prompt
from pipeline_lib.rewards import get_verifier

BATCH = 1024


def ingest(
    sources: Sequence[PromptSource],
    *,
    set_name: str,
    held_out: HeldOut | None = None,
    drop_held_out: bool = True,
    say: Callable[[str], None] = lambda sentence: None,
    scratch: Path | None = None,
) -> PromptSet:
    """The prompts of one set.

    Sources are labelled by position and name, such as `0:train.jsonl`. Prompts that ask what a set of `held_out` asks
    are counted, and left out unless told otherwise; where it is None, the set's own questions are not known either.
    `say` is told the format of each source before its rows are read. Texts are put aside in nameless files in the
    directory `scratch`. Raises ValueError for a source that cannot be read, and, with the counts by reason, when no
    prompt is left.
    """
    labels = [f"{position}:{source_name(source)}" for position, source in enumerate(sources)]
    found = PromptSet(labels, scratch)
    seen = SeenKeys()
    for number, source in enumerate(sources):
        opened = open_source(source)
        say(f"{set_name}: {labels[number]} is read as {opened.read_as}")
        while rows := list(islice(opened.prompts, BATCH)):
            bad = ((index, row.reason, row.detail) for index, row in rows if isinstance(row, BadRow))
            found.reject(number, bad)
            good = [(index, row) for index, row in rows if not isinstance(row, BadRow)]
            new = _merge(found, seen, number, good)
            if held_out is not None:
                suffix = source.suffix if isinstance(source, RowSource) else ""
                found.add_questions([question_key(prompt.messages, suffix) for prompt in new])
    found.finish()
    found.leave_out("conflicting_gold", _conflicts(found))
    if held_out is not None:
        _find_held_out(found, held_out, drop_held_out)
    found.draw([(source.limit, source.seed) if isinstance(source, RowSource) else (None, 0) for source in sources])
    if found.n_prompts == 0:
        counts = ", ".join(f"{reason} {count}" for reason, count in found.reject_counts.items())
        raise ValueError(
            f"set {set_name!r}: no prompt is left of {found.n_rows} rows from {', '.join(labels)}"
            f" (left out: {counts or 'none'}); look at these sources, or choose others"
        )
    return found


def _merge(found: PromptSet, seen: SeenKeys, source: int, rows: Sequence[tuple[int, Prompt]]) -> list[Prompt]:
    """Add the rows of one batch, and the texts of prompts that come for the first time, which are handed back.

    A prompt that comes with another gold counts as new: only when all is read are its golds compared.
    """
    verifiers = {name: get_verifier(name) for name in {prompt.verifier for _, prompt in rows}}
    keys = keys_of([prompt.prompt_id for _, prompt in rows])
    golds = [hash(verifiers[prompt.verifier].normal_gold(prompt.gold)) for _, prompt in rows]
    pairs = keys + np.array(golds, np.int64).view(np.uint64)
    indices = np.array([index for index, _ in rows], np.int64)
    new = seen.first(pairs)
    problems = {}
    for i in np.flatnonzero(new).tolist():
        prompt = rows[i][1]
        problem = verifiers[prompt.verifier].gold_problem(prompt)
        if problem is not None:
            problems[int(pairs[i])] = problem
    if problems:
        gradable = np.array([pair not in problems for pair in pairs.tolist()], bool)
        ungradable = zip(indices[~gradable].tolist(), pairs[~gradable].tolist(), strict=True)
        found.reject(source, [(index, "unparseable_gold", problems[pair]) for index, pair in ungradable])
        rows = [row for row, good in zip(rows, gradable, strict=True) if good]
        keys, pairs, indices, new = keys[gradable], pairs[gradable], indices[gradable], new[gradable]
    found.add_rows(source, indices, keys)
    seen.add(pairs[new])
    prompts = [rows[i][1] for i in np.flatnonzero(new).tolist()]
    found.add_texts(prompts_batch(ids_of(keys[new]), prompts), keys[new])
    return prompts


def _find_held_out(found: PromptSet, held_out: HeldOut, drop: bool) -> None:
    shared = {key: sets for key, question in found.questions() if (sets := held_out.sets_of(question))}
    found.contamination = count_by_set(shared.values())
    if drop:
        details = {key: f"prompt {key:016x} is held out in {', '.join(sets)}" for key, sets in shared.items()}
        found.leave_out("in_validation_or_evaluation_set", details)


def _conflicts(found: PromptSet) -> dict[int, str]:
    golds_of = found.golds_of_conflicts().items()
    return {key: f"prompt {key:016x} has the golds {', '.join(map(repr, golds))}" for key, golds in golds_of}
