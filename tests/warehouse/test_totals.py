"""prompt_totals: the same whether its rows are gathered when asked, or were kept when their step ended."""

from pathlib import Path
from typing import Any

import pytest
from history_cases import HISTORY, NOON, rows, train_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from warehouse_rows import decision, stats, step, table

from pipeline_lib.sampling import Observation
from warehouse import Warehouse

BY_HAND = {
    "n_observations": 3,
    "n": 8,
    "n_correct": 1,
    "n_ungraded": 4,
    "n_without_signal": 8,
    "n_truncated": 0,
    "n_tokens": 120.0,
    "max_length": 12,
    "outcomes": "WM",
    "steps": [1, 4],
    "pass_rates": [0.0, 0.25],
    "last_pass_rate": 0.25,
    "last_graded_n": 4,
    "last_step": 4,
    "last_n": 4,
    "last_n_correct": 1,
    "last_outcome": "mixed",
    "last_has_signal": True,
}
COUNTS = "SELECT (SELECT count(*) FROM kept_totals) AS kept, (SELECT count(*) FROM ungathered) AS ungathered"


def completed(*fingerprints: str) -> dict[str, Any]:
    return {"steps": table(*(step(fingerprint, NOON, NOON) for fingerprint in fingerprints))}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def test_totals_of_one_prompt_worked_by_hand(warehouse: Warehouse) -> None:
    observed = [
        train_stats("t", 4, "a", 1),
        train_stats("t", 1, "a", 0),
        train_stats("t", 2, "a", 0, n=0),
        train_stats("t", 1, "b", 4),
    ]
    warehouse.write({"rollout_stats": table(*observed)})
    for _ in range(2):  # gathered when asked, then kept
        [found] = warehouse.query("FROM prompt_totals WHERE prompt_id = 'a'").to_pylist()
        assert {name: found[name] for name in BY_HAND} == BY_HAND
        warehouse.write(completed("t"))
    assert rows(warehouse.query(COUNTS)) == [(2, 0)]


def test_every_view_answers_alike_before_and_after_the_steps_end(warehouse: Warehouse) -> None:
    warehouse.write({name: rows for name, rows in HISTORY.items() if name != "steps"})
    views = ["prompt_totals", "prompt_paths", "prompt_difficulty", "selection_history", "zero_variance_persistence"]
    before = [rows(warehouse.query(f"FROM {view} ORDER BY ALL")) for view in views]
    assert rows(warehouse.query(COUNTS)) == [(0, 4)]
    warehouse.write(completed("off", "tr1", "tr2", "ev2"))
    assert rows(warehouse.query(COUNTS)) == [(4 + 4 + 3 + 1, 0)]
    assert [rows(warehouse.query(f"FROM {view} ORDER BY ALL")) for view in views] == before


def test_a_step_that_writes_after_its_end_is_gathered_anew(warehouse: Warehouse) -> None:
    warehouse.write(
        {"rollout_stats": table(train_stats("t", 1, "a", 0), train_stats("u", 1, "a", 4))} | completed("t", "u")
    )
    assert rows(warehouse.query(COUNTS)) == [(2, 0)]
    warehouse.write({"rollout_stats": table(train_stats("t", 1, "a", 2))})
    assert rows(warehouse.query(COUNTS)) == [(1, 1)]
    assert rows(warehouse.query("SELECT fingerprint, outcomes FROM prompt_totals ORDER BY 1")) == [
        ("t", "M"),
        ("u", "R"),
    ]
    warehouse.write(completed("t"))
    warehouse.write(completed("t"))
    assert rows(warehouse.query(COUNTS)) == [(2, 0)]
    assert rows(warehouse.query("SELECT fingerprint, outcomes FROM prompt_totals ORDER BY 1")) == [
        ("t", "M"),
        ("u", "R"),
    ]


def test_decisions_are_counted_by_prompt_and_reason(warehouse: Warehouse) -> None:
    decided = [decision("t", at, "a", keep=at == 3, reason="explored" if at == 3 else "easy") for at in (1, 2, 3)]
    warehouse.write({"sampler_decisions": table(*decided, decision("u", 1, "a", keep=True, reason="easy"))})
    expected = [("t", "a", False, "easy", 2), ("t", "a", True, "explored", 1), ("u", "a", True, "easy", 1)]
    counted = "SELECT fingerprint, prompt_id, keep, reason, n_decisions FROM decision_totals ORDER BY ALL"
    assert rows(warehouse.query(counted)) == expected
    warehouse.write(completed("t", "u"))
    assert rows(warehouse.query("SELECT count(*) FROM kept_decisions")) == [(3,)]
    assert rows(warehouse.query(counted)) == expected
    warehouse.write({"sampler_decisions": table(decision("t", 4, "a", keep=False, reason="easy"))})
    assert rows(warehouse.query(counted)) == [("t", "a", False, "easy", 3), *expected[1:]]


def test_a_letter_says_whether_the_rewards_differ_as_samplers_see_it(warehouse: Warehouse) -> None:
    """Of partial credit group 1 teaches, none of it correct, and 4, all of it; 2, half of it correct, does not."""
    seen = [(0, True), (2, False), (1, False), (4, True), (0, False), (4, False), (2, True)]
    told = [train_stats("t", at, "a", n) | {"has_signal": differ} for at, (n, differ) in enumerate(seen, start=1)]
    warehouse.write({"rollout_stats": table(*told)})
    assert rows(warehouse.query("SELECT outcomes FROM prompt_totals")) == [("MRWMWRM",)]
    expected = [Observation("a", 4, n, differ).outcome for n, differ in seen]
    assert "".join({"all_right": "R", "all_wrong": "W"}.get(outcome, "M") for outcome in expected) == "MRWMWRM"


def test_rows_written_instead_take_their_totals_along(warehouse: Warehouse) -> None:
    warehouse.write({"rollout_stats": table(train_stats("t", 1, "a", 0), train_stats("t", 1, "b", 0))} | completed("t"))
    fewer = table(train_stats("t", 1, "b", 4)).drop_columns(["fingerprint"])
    warehouse.write({"rollout_stats": fewer}, fingerprint="t", instead=True)
    assert rows(warehouse.query("SELECT prompt_id, outcomes FROM prompt_totals")) == [("b", "R")]
    warehouse.write({"rollout_stats": fewer.slice(0, 0)}, fingerprint="t", instead=True)
    assert warehouse.query("FROM prompt_totals").num_rows == 0


@settings(max_examples=6)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("tu"),
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 4)), max_size=4),
            st.sampled_from(["write", "write", "instead", "complete"]),
        ),
        max_size=6,
    )
)
def test_totals_follow_their_rows_whatever_is_written(
    tmp_path_factory: pytest.TempPathFactory, writes: list[Any]
) -> None:
    warehouse = Warehouse(tmp_path_factory.mktemp("any"))
    expected: dict[tuple[str, str, int], int] = {}
    for fingerprint, observed, how in writes:
        if how == "complete":
            warehouse.write(completed(fingerprint))
            continue
        if how == "instead":
            expected = {key: n for key, n in expected.items() if key[0] != fingerprint}
        new = {(fingerprint, prompt_id, at): n for prompt_id, at, n in observed}
        expected |= new
        told = table(*(stats(f, i, n, step=at, phase="train") for (f, i, at), n in new.items()))
        warehouse.write({"rollout_stats": told}, fingerprint=fingerprint, instead=how == "instead")
    outcomes: dict[tuple[str, str], str] = {}
    for (fingerprint, prompt_id, _), n in sorted(expected.items()):
        letter = {0: "W", 4: "R"}.get(n, "M")
        outcomes[fingerprint, prompt_id] = outcomes.get((fingerprint, prompt_id), "") + letter
    found = rows(warehouse.query("SELECT fingerprint, prompt_id, outcomes FROM prompt_totals ORDER BY ALL"))
    assert found == [(*key, letters) for key, letters in sorted(outcomes.items())]
