"""A set in batches is the set that one would make of all rows at once, and holds next to nothing of them in memory."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_cases import rejects_of, rows_of, trl_file

from pipeline_lib.prompts import ingest as ingest_module
from pipeline_lib.prompts.arrow import prompt_of, prompts_batch
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.keys import SeenKeys, ids_of, keys_of
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.rejects import REMEDIES, Rejects
from pipeline_lib.prompts.spill import Spill
from pipeline_lib.records import Prompt, prompt_id_of


@given(batches=st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12))
def test_keys_are_first_once(batches: list[list[int]]) -> None:
    keys, seen = SeenKeys(), set[int]()
    for batch in batches:
        array = np.array(batch, np.uint64)
        expected = []
        for key in batch:
            expected.append(key not in seen)
            seen.add(key)
        first = keys.first(array)
        assert first.tolist() == expected
        keys.add(array[first])


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_keys_and_ids_are_two_forms_of_one_thing(keys: list[int]) -> None:
    ids = ids_of(np.array(keys, np.uint64))
    assert ids.to_pylist() == [f"{key:016x}" for key in keys]
    assert keys_of(ids.to_pylist()).tolist() == keys


TEXT = st.text('a"\\/\n\x00\x7fé中😀', max_size=8)


@given(
    source=TEXT,
    turns=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    gold=TEXT,
    extra=st.dictionaries(TEXT, st.one_of(st.none(), st.integers(), TEXT, st.lists(TEXT, max_size=2)), max_size=2),
)
def test_a_prompt_comes_back_from_its_row(source: str, turns: Any, gold: str, extra: dict[str, Any]) -> None:
    messages = tuple({"role": role, "content": content} for role, content in turns)
    prompt = Prompt(source, messages, gold, "math", extra=extra)  # type: ignore[arg-type]
    [row] = prompts_batch(pa.array([prompt.prompt_id]), [prompt]).to_pylist()
    assert prompt_of(row) == prompt and row["prompt_id"] == prompt.prompt_id


def test_a_spill_is_read_again_and_by_two_at_once(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    spill = Spill(schema, tmp_path)
    for i in range(3):
        spill.add(pa.record_batch([pa.array([i])], schema=schema))
    assert [(a["a"][0].as_py(), b["a"][0].as_py()) for a, b in zip(spill, spill, strict=True)] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    assert list(tmp_path.iterdir()) == []  # nothing for a kill to leave behind


def test_rejects_are_counted_and_kept_in_order() -> None:
    rejects = Rejects(None)
    rows = [("0:a", i, "no_gold" if i % 3 else "no_prompt", str(i)) for i in range(20_000)]
    rejects.add(rows)
    assert len(rejects) == 20_000 and rejects.counts["no_prompt"] == 6667
    assert [tuple(row.values()) for batch in rejects.batches() for row in batch.to_pylist()] == rows


Row = tuple[str, str]
GOLDS = ["1", "1.0", "2", ")(", ""]
FILES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(GOLDS)), max_size=10),
        st.one_of(st.none(), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=3,
)


def expected_of(files: list[tuple[list[Row], int | None]]) -> tuple[list[str], Counter[str], set[tuple[int, int]]]:
    """Prompts in order, rejects by reason, and (file, row) of the good rows: all rows at once, nothing clever."""
    rows = [(f, r, prompt, gold) for f, (lines, _) in enumerate(files) for r, (prompt, gold) in enumerate(lines)]
    reasons = Counter("no_gold" if not gold else "unparseable_gold" for *_, gold in rows if gold in ("", ")("))
    good = [row for row in rows if row[3] not in ("", ")(")]
    golds: dict[str, set[float]] = {}
    for _, _, prompt, gold in good:
        golds.setdefault(prompt, set()).add(float(gold))
    reasons["conflicting_gold"] = sum(len(golds[prompt]) > 1 for _, _, prompt, _ in good)
    good = [row for row in good if len(golds[row[2]]) == 1]
    drawn: set[str] = set()
    for f, (_, limit) in enumerate(files):
        own = list(dict.fromkeys(prompt for file, _, prompt, _ in good if file == f))
        drawn |= set(own if limit is None or limit >= len(own) else Random(7).sample(own, limit))
    kept = [row for row in good if row[2] in drawn]
    return list(dict.fromkeys(row[2] for row in kept)), +reasons, {row[:2] for row in kept}


@settings(max_examples=50)  # the first ungradable gold imports math-verify
@given(files=FILES)
def test_batches_give_what_all_rows_at_once_give(files: list[tuple[list[Row], int | None]]) -> None:
    prompts, reasons, good = expected_of(files)
    with TemporaryDirectory() as directory, patch.object(ingest_module, "BATCH", 3):
        sources = []
        for i, (rows, limit) in enumerate(files):
            source = trl_file(Path(directory) / f"{i}.jsonl", rows)
            sources.append(source.model_copy(update={"limit": limit, "seed": 7}))
        if not prompts:
            with pytest.raises(ValueError, match="no prompt is left"):
                ingest(sources, set_name="x")
            return
        found = ingest(sources, set_name="x")
    ids = [prompt_id_of("test", ({"role": "user", "content": text},)) for text in prompts]
    assert list(found.prompts) == ids and found.n_prompts == len(ids)
    assert found.reject_counts == dict(reasons) == dict(Counter(row["reason"] for row in rejects_of(found)))
    assert {(int(row["source"][0]), row["row_index"]) for row in rows_of(found)} == good
    assert found.n_duplicates == len(good) - len(ids)
    assert found.n_rows == sum(len(rows) for rows, _ in files)


def test_prompts_that_are_left_out_later_become_rejects(tmp_path: Path) -> None:
    source = trl_file(tmp_path / "a.jsonl", [("a", "1"), ("b", "2"), ("a", "1")])
    found = ingest([source], set_name="x")
    first = int(next(iter(found.prompts)), 16)
    found.leave_out("prompt_too_long", {first: "9 tokens"})
    assert (found.n_prompts, found.n_duplicates, found.n_rows) == (1, 0, 3)
    assert [(row["row_index"], row["detail"]) for row in rejects_of(found)] == [(0, "9 tokens"), (2, "9 tokens")]


def test_each_reason_has_a_remedy(tmp_path: Path) -> None:
    """A reason that no REMEDIES entry explains would end `rlsift ingest` in a KeyError."""
    root = Path(__file__).parents[2]
    code = "".join(path.read_text() for path in [*root.glob("pipeline_lib/prompts/*.py"), root / "tasks/prompts.py"])
    named = set(re.findall(r'(?:BadRow\(|leave_out\(\s*|\(index, )"(\w+)"', code))
    assert len(named) == len(REMEDIES) and named == set(REMEDIES)


def test_memory_does_not_hold_the_texts(tmp_path: Path) -> None:
    """12 MB of text; numpy's arrays are traced, Arrow's buffers live in its own pool."""
    source = trl_file(tmp_path / "a.jsonl", [(f"{i}? " + "word " * 800, str(i)) for i in range(3_000)])
    ingest([source], set_name="warm up")
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with patch.object(ingest_module, "BATCH", 100):
        found: PromptSet = ingest([source], set_name="x", scratch=tmp_path)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.n_prompts == 3_000
    assert peak < 4e6 and held < 1e6
    assert pa.total_allocated_bytes() - before < 1e6
