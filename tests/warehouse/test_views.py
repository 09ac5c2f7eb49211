"""Each view against one small history, its answers worked by hand."""

import math
import uuid
from datetime import timedelta

import pytest
from history_cases import HISTORY, NOON, approx, rows, train_stats
from hypothesis import example, given, settings
from hypothesis import strategies as st
from warehouse_rows import selection, table

from warehouse import Warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("history"))
    warehouse.write(HISTORY)
    warehouse.publish()
    return warehouse


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse(tmp_path_factory.mktemp("scratch"))


def test_prompt_difficulty_history(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT observation, stage, phase, step, n, n_correct, pass_rate, outcome, has_signal "
        "FROM prompt_difficulty_history WHERE run_id = 'r' AND prompt_id IN ('a', 'c') ORDER BY prompt_id, 1"
    )
    assert rows(answer) == [
        (1, 0, "offline", 0, 4, 0, 0.0, "all_wrong", False),
        (2, 1, "train", 1, 4, 0, 0.0, "all_wrong", False),
        (3, 1, "train", 2, 4, 1, 0.25, "mixed", True),
        (4, 2, "train", 1, 4, 4, 1.0, "all_right", False),
        (5, 2, "evaluation", 0, 4, 2, 0.5, "mixed", True),
        (1, 0, "offline", 0, 4, 2, 0.5, "mixed", True),
        (2, 1, "train", 1, 0, 0, None, "ungraded", False),
        (3, 1, "train", 2, 4, 0, 0.0, "all_wrong", False),
        (4, 2, "train", 1, 4, 1, 0.25, "mixed", True),
    ]


def test_a_shared_step_belongs_to_each_of_its_runs(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT prompt_id, data_source, kind, pass_rate FROM prompt_difficulty WHERE run_id = 'other' ORDER BY 1"
    )
    assert rows(answer) == [
        ("a", "sums", "hard", 0.0),
        ("b", "sums", "easy", 1.0),
        ("c", "sums", None, 0.5),
        ("d", "sums", None, 1.0),
    ]


def test_prompt_difficulty_is_the_latest_observation(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT prompt_id, stage, phase, pass_rate FROM prompt_difficulty WHERE run_id = 'r' ORDER BY 1"
    )
    assert rows(answer) == [
        ("a", 2, "evaluation", 0.5),
        ("b", 2, "train", 1.0),
        ("c", 2, "train", 0.25),
        ("d", 1, "train", 0.25),
    ]


def test_zero_variance_persistence(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query("FROM zero_variance_persistence ORDER BY class, lag")
    assert rows(answer) == approx(
        # b: R R, R R; d: R W. Then b: R . R; d: R . M
        ("r", "all_right", 1, 3, 1.0, 0.0, None),
        ("r", "all_right", 2, 2, 0.5, 0.5, None),
        # a: W W, W M; c: W M; d: W M. A quarter stays, so a half is gone after half an observation.
        ("r", "all_wrong", 1, 4, 0.25, 0.75, 0.5),
        # a: W . M, W . R; a: W . . R
        ("r", "all_wrong", 2, 2, 0.5, 0.5, None),
        ("r", "all_wrong", 3, 1, 1.0, 0.0, None),
    )


def test_zero_variance_revivals(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query("FROM zero_variance_revivals ORDER BY prompt_id")
    assert rows(answer) == [
        ("r", "a", 0, 0, "all_wrong", 1, 2, 0.25, 2),
        ("r", "c", 1, 2, "all_wrong", 2, 1, 0.25, 1),
        ("r", "d", 1, 1, "all_wrong", 1, 2, 0.25, 1),
    ]


def test_sampler_efficiency(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query("FROM sampler_efficiency ORDER BY stage")
    assert rows(answer) == approx(
        ("r", 1, 16, 4, 0.25, 12, 48, 8 / 12, 2 / 12, 2 / 12, 8, 16.0, 240),
        ("r", 2, 5, 5, 1.0, 0, 0, None, None, None, 0, None, 0),
    )


def test_evaluation_history(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT metric, stage, k, value, change_from_previous_stage, change_from_stage_0 "
        "FROM evaluation_history ORDER BY metric, stage"
    )
    assert rows(answer) == approx(
        ("avg", 0, 4, 0.2, None, 0.0),
        ("avg", 1, 4, 0.5, 0.3, 0.3),
        ("avg", 2, 4, 0.4, -0.1, 0.2),
        ("pass", 0, 4, 0.6, None, 0.0),
        ("pass", 1, 4, 0.7, 0.1, 0.1),
    )


def test_stage_summary(warehouse: Warehouse) -> None:
    summary = warehouse.snapshot_query("FROM stage_summary WHERE run_id = 'r' ORDER BY stage").to_pylist()
    evaluations = [row.pop("evaluations") for row in summary]
    assert [tuple(row.values()) for row in summary] == [
        ("r", 0, None, None, None, 4, None, 16, None, 15.5),
        ("r", 1, 4, 2, 2, 12, 4, 48, 0.375, 60.0),
        ("r", 2, 4, 2, 1, 0, 5, 0, None, None),
    ]
    assert evaluations == [
        [{"evaluation_set": "gsm", "k": 4, "before": None, "after": 0.2}],
        [{"evaluation_set": "gsm", "k": 4, "before": 0.2, "after": 0.5}],
        [{"evaluation_set": "gsm", "k": 4, "before": 0.5, "after": 0.4}],
    ]


def test_selection_history_knows_only_what_was_known_before(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT stage, prompt_id, kind, rank, selected, reason, pass_rate FROM selection_history ORDER BY 1, 2"
    )
    assert rows(answer) == [
        (1, "a", "hard", 1, True, "top_alpha", 0.0),
        (1, "b", "easy", 3, False, "below_alpha", 1.0),
        (1, "c", None, 2, True, "top_alpha", 0.5),
        (1, "d", None, 4, False, "below_alpha", 1.0),
        (2, "a", "hard", 2, True, "top_alpha", 0.25),
        (2, "b", "easy", 3, False, "below_alpha", 1.0),
        (2, "c", None, 4, False, "below_alpha", 0.0),
        (2, "d", None, 1, True, "top_alpha", 0.25),
    ]


def test_selection_overlap(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query("FROM selection_overlap")
    assert rows(answer) == approx(("r", 1, 2, 2, 2, 1, 1 / 3))


def test_stage_diagnosis(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query(
        "SELECT stage, metric, subject, value, n FROM stage_diagnosis WHERE run_id = 'r' ORDER BY ALL"
    )
    assert rows(answer) == approx(
        (1, "effective_prompts", "gsm", None, 0),
        # Offline: a 0, b 1, c 1/2, d 1. Stage 1 selects a and c, stage 2 selects d and a.
        (1, "pass_rate_offline_pool", "", 2.5 / 4, 4),
        (1, "pass_rate_offline_selected", "", 0.25, 2),
        # a 1 of 8, b 4 of 4, c 0 of 4 (one step was not graded), d 1 of 8
        (1, "pass_rate_online_selected", "", (1 / 8 + 1 + 0 + 1 / 8) / 4, 4),
        (1, "share_zero", "gsm", 0.25, 4),
        (1, "similarity_pool", "gsm", 0.4, 4),
        (1, "similarity_selected", "gsm", 0.6, 2),
        (1, "split_half_spearman", "gsm", 0.7, 4),
        (2, "jaccard_previous", "", 1 / 3, 3),
        (2, "pass_rate_offline_pool", "", 2.5 / 4, 4),
        (2, "pass_rate_offline_selected", "", 0.5, 2),
        # a 1, b 1, c 1/4
        (2, "pass_rate_online_selected", "", 2.25 / 3, 3),
        (2, "similarity_pool", "gsm", 0.4, 4),
        (2, "similarity_selected", "gsm", 0.5, 2),
    )


def test_stages_that_share_no_prompt_overlap_by_0(scratch: Warehouse) -> None:
    chosen = [selection("sel1", "a", 1, selected=True), selection("sel2", "a", 1, selected=False)]
    scratch.write({"run_steps": HISTORY["run_steps"], "selections": table(*chosen)})
    assert rows(scratch.query("FROM selection_overlap")) == [("r", 1, 2, 1, 0, 0, 0.0)]


def test_run_progress(warehouse: Warehouse) -> None:
    answer = warehouse.snapshot_query("FROM run_progress WHERE run_id = 'r' AND stage = 1 ORDER BY name")
    assert rows(answer) == [
        ("r", 1, "diagnose", "dia1", None, None, None, None, None),
        ("r", 1, "evaluate", "ev1", "running", NOON, None, None, 1),
        ("r", 1, "score", "sco1", None, None, None, None, None),
        ("r", 1, "select", "sel1", None, None, None, None, None),
        ("r", 1, "train", "tr1", "completed", NOON, NOON + timedelta(seconds=60), None, 1),
    ]


@settings(max_examples=4)
@example(["RWM" * 40 + "RRWW" * 5, "W" * 55 + "M" * 10 + "R" * 64 + "M", "MR" * 27, "W" * 64])  # longer than one window
@given(st.lists(st.text(alphabet="RWMU", min_size=1, max_size=14), min_size=1, max_size=12))
def test_persistence_and_revivals_agree_with_a_count_by_hand(scratch: Warehouse, histories: list[str]) -> None:
    """R all_right, W all_wrong, M mixed, U ungraded."""
    run_id = uuid.uuid4().hex
    run_step = {"run_id": run_id, "stage": 1, "name": "train", "fingerprint": run_id}
    correct = {"R": (4, 4), "W": (0, 4), "M": (2, 4), "U": (0, 0)}
    observed = [
        train_stats(run_id, step, f"p{i}", *correct[outcome])
        for i, history in enumerate(histories)
        for step, outcome in enumerate(history)
    ]
    scratch.write({"run_steps": table(run_step), "rollout_stats": table(*observed)})
    persistence = scratch.query("FROM zero_variance_persistence WHERE run_id = ?", [run_id]).to_pylist()
    revivals = scratch.query("FROM zero_variance_revivals WHERE run_id = ?", [run_id]).to_pylist()

    graded = [history.replace("U", "") for history in histories]
    pairs = [
        ({"R": "all_right", "W": "all_wrong"}[history[i]], lag, history[i + lag] != "M")
        for history in graded
        for lag in range(1, 11)
        for i in range(len(history) - lag)
        if history[i] != "M"
    ]
    assert {(row["class"], row["lag"]) for row in persistence} == {pair[:2] for pair in pairs}
    for row in persistence:
        still = [pair[2] for pair in pairs if pair[:2] == (row["class"], row["lag"])]
        stay = sum(still) / len(still)
        assert (row["n_pairs"], row["share_still_zero_variance"]) == (len(still), pytest.approx(stay))
        half_life = math.log(0.5) / math.log(stay) if row["lag"] == 1 and 0 < stay < 1 else None
        assert row["half_life_observations"] == pytest.approx(half_life)

    lengths = []
    for i, history in enumerate(graded):
        for end in range(1, len(history)):
            if history[end] == "M" and (last := history[end - 1]) != "M":
                before = history[:end]
                lengths.append((f"p{i}", len(before) - len(before.rstrip(last))))
    assert sorted((row["prompt_id"], row["n_observations"]) for row in revivals) == sorted(lengths)
