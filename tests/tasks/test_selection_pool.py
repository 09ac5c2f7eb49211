"""What a stage selects from, out of the warehouse, against the same counted row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_cases import run_config

from pipeline_lib.selection import Candidates
from tasks.progress import get_reporter
from tasks.selection import Select
from tasks.step import Done, Workshop
from warehouse import Warehouse

STEPS = ("offline", "collected", "trained")
SETS = ("v", "w")
Observed = tuple[str, str, int, int, int]
"""step, prompt, training step, graded completions, correct ones"""
observed = st.tuples(st.sampled_from(STEPS), st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 4)).flatmap(
    lambda row: st.tuples(*map(st.just, row), st.integers(0, row[3]))
)


def stats(at: Observed) -> dict[str, Any]:
    fingerprint, prompt_id, step, n, n_correct = at
    outcome = "ungraded" if n == 0 else {0: "all_wrong", n: "all_right"}.get(n_correct, "mixed")
    return {
        "fingerprint": fingerprint,
        "prompt_id": prompt_id,
        "step": step if fingerprint == "trained" else 0,
        "phase": "train",
        "policy_id": "p",
        "n": n,
        "n_correct": n_correct,
        "n_ungraded": 4 - n,
        "outcome": outcome,
        "has_signal": outcome == "mixed",
        "n_truncated": 0,
        "mean_length": 10.0 * STEPS.index(fingerprint) + step if fingerprint in STEPS else 99.0,
        "max_length": 1,
    }


def score(prompt_id: str, validation_set: str, rank: int) -> dict[str, Any]:
    row = {"fingerprint": "score", "prompt_id": prompt_id, "validation_set": validation_set, "rank": rank}
    return row | {"dot": 0.0, "cosine": 0.0, "norm": 0.0, "estimator": "exact"}


def relevance(prompt_id: str, validation_set: str, value: float) -> dict[str, Any]:
    row = {"fingerprint": "relevance", "prompt_id": prompt_id, "validation_set": validation_set}
    return row | {"cosine": 0.0, "relevance": value}


def source(name: str) -> dict[str, Any]:
    row = {"fingerprint": "ingest", "split": "validation", "set_name": name, "source": "s"}
    return {**row, "row_index": 0, "prompt_id": f"of {name}"}


def in_pool(prompt_id: str) -> dict[str, Any]:
    row = {"fingerprint": "ingest", "split": "train", "set_name": "train", "source": "s"}
    return {**row, "row_index": ord(prompt_id), "prompt_id": prompt_id}


def state(prompt_id: str) -> dict[str, Any]:
    row = {"fingerprint": "relevance", "prompt_id": prompt_id, "n_tokens": ord(prompt_id)}
    return row | {"state": [ord(prompt_id) + 0.5, -1.0]}


def pool_of(warehouse: Warehouse, compared_by: str | None = "score") -> Candidates:
    offline, collected, trained = (Done(name, {}, cached=True) for name in STEPS)
    step = Select(
        run_config(warehouse.root),
        2,
        Done("ingest", {}, cached=True),
        (offline, collected),
        Done("score", {"ranks_id": "r"}, cached=True) if compared_by == "score" else None,
        Done("relevance", {}, cached=True) if compared_by == "relevance" else None,
        (offline, collected, trained),
    )
    return step._candidates(Workshop(step, warehouse, get_reporter()))


def latest_graded_has_signal(rows: dict[tuple[str, str, int], dict[str, Any]], prompt_id: str) -> bool:
    """False where none was graded."""
    of_prompt = [row for (_, i, _), row in rows.items() if i == prompt_id and row["n"]]
    in_order = sorted(of_prompt, key=lambda row: (STEPS.index(row["fingerprint"]), row["step"]))
    return bool(in_order and in_order[-1]["has_signal"])


def known(rows: dict[tuple[str, str, int], dict[str, Any]], prompt_id: str) -> tuple[Any, ...]:
    """Rate and n of the latest that was graded, length of the latest, outcome and signal of the latest collected."""
    of_prompt = [row for (_, i, _), row in rows.items() if i == prompt_id]
    in_order = sorted(of_prompt, key=lambda row: (STEPS.index(row["fingerprint"]), row["step"]))
    graded = [(row["n_correct"] / row["n"], row["n"]) for row in in_order if row["n"]]
    collected = [(row["outcome"], row["has_signal"]) for row in in_order if row["fingerprint"] != "trained"]
    return (*(graded[-1] if graded else (None, 0)), in_order[-1]["mean_length"], *collected[-1])


@settings(max_examples=6)
@example([("offline", "a", 1, 0, 0)], ["a", "b", "c"], set())
@given(st.lists(observed, max_size=12), st.permutations("abc"), st.sets(st.sampled_from(STEPS)))
def test_the_pool_is_what_is_known_of_each_prompt_by_now(
    tmp_path_factory: pytest.TempPathFactory, written: list[Observed], ranked: list[str], completed: set[str]
) -> None:
    warehouse = Warehouse(tmp_path_factory.mktemp("pool"))
    rows = {}
    for row in [stats(("offline", i, 0, 4, n)) for i, n in zip("abc", (0, 2, 4), strict=True)] + list(
        map(stats, written)
    ):
        rows[row["fingerprint"], row["prompt_id"], row["step"]] = row
    warehouse.write(
        {
            "rollout_stats": pa.Table.from_pylist([*rows.values(), stats(("of another run", "d", 0, 4, 4))]),
            "influence_scores": pa.Table.from_pylist(
                [score(i, "v", rank) for rank, i in enumerate(ranked, 1)]
                + [score(i, "w", r) for r, i in enumerate("abc", 1)]
            ),
            "relevances": pa.Table.from_pylist(
                [relevance(i, "v", 0.1 * n) for n, i in enumerate("abc")]
                + [relevance(i, "w", 1 - 0.1 * n) for n, i in enumerate("abc")]
            ),
            "prompt_states": pa.Table.from_pylist([state(i) for i in "cab"]),
            "prompt_sources": pa.Table.from_pylist([*map(source, reversed(SETS)), *map(in_pool, "abc")]),
            "steps": ended(completed),
        }
    )
    pool = pool_of(warehouse)
    columns = (pool.prompt_ids, pool.pass_rate, pool.n, pool.tokens, pool.outcome, pool.has_signal)
    found = {i: (None if math.isnan(rate) else rate, *rest) for i, rate, *rest in zip(*columns, strict=True)}
    assert found == {i: known(rows, i) for i in "abc"}
    assert pool.validation_sets == list(SETS)
    assert pool.rank_NV is not None
    by_prompt = dict(zip(pool.prompt_ids, pool.rank_NV.tolist(), strict=True))
    assert by_prompt == {i: [ranked.index(i) + 1, "abc".index(i) + 1] for i in "abc"}
    compared = pool_of(warehouse, "relevance")
    assert compared.rank_NV is None and pool.likeness is None and compared.likeness is not None
    by_prompt = dict(zip(compared.prompt_ids, compared.likeness.relevance_NV.tolist(), strict=True))
    assert by_prompt == {i: [0.1 * n, 1 - 0.1 * n] for n, i in enumerate("abc")}
    states = zip(compared.likeness.n_tokens_N.tolist(), compared.likeness.states_ND.tolist(), strict=True)
    assert dict(zip(compared.prompt_ids, states, strict=True)) == {i: (ord(i), [ord(i) + 0.5, -1.0]) for i in "abc"}
    of_the_last = {row["prompt_id"] for row in rows.values() if row["fingerprint"] == "trained" and row["n"]}
    assert {i for i, fresh in zip(compared.prompt_ids, compared.likeness.fresh_N, strict=True) if fresh} == of_the_last
    for i, has_signal in zip(compared.prompt_ids, compared.has_signal, strict=True):
        assert has_signal == latest_graded_has_signal(rows, i), "of the group that the pass rate is of"
    unscored = pool_of(warehouse, None)
    assert unscored.rank_NV is None and unscored.likeness is None
    assert sorted(unscored.prompt_ids) == sorted(pool.prompt_ids)


def ended(completed: set[str]) -> pa.Table:
    """Steps whose totals are kept; those of the others are gathered when asked for."""
    row = {
        "name": "train",
        "settings": "{}",
        "inputs": "{}",
        "attempts": 1,
        "started_at": np.datetime64("2026-01-01", "us"),
    }
    return pa.Table.from_pylist(
        [{"fingerprint": name, "status": "completed" if name in completed else "running", **row} for name in STEPS]
    )
