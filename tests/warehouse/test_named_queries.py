"""Each named query against one small history, its answer worked by hand."""

from typing import Any

import numpy as np
import pytest
from history_cases import ASKED, HISTORY, approx, rows
from warehouse_rows import stats, table

from warehouse import Warehouse, WarehouseError
from warehouse.named import QUERIES, find_query


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("asked"))
    warehouse.write(ASKED)
    warehouse.publish()
    return warehouse


def asked(warehouse: Warehouse, name: str, **given: str) -> list[dict[str, Any]]:
    query = find_query(name)
    return warehouse.ask(query.sql, query.values(given)).to_pylist()


def columns(answer: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in answer]


def values(answer: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer]


def test_prompt_history(warehouse: Warehouse) -> None:
    answer = asked(warehouse, "prompt_history", prompt="a")
    ours = [row for row in answer if row["run_id"] == "r"]
    assert columns(ours, "stage", "pass_rate", "change", "selected") == [
        (0, 0.0, None, None),
        (1, 0.0, 0.0, True),
        (1, 0.25, 0.25, True),
        (2, 1.0, 0.75, True),
        (2, 0.5, -0.5, True),
    ]
    assert [row["run_id"] for row in answer] == ["r"] * 5 + ["twin"]
    assert asked(warehouse, "prompt_history", prompt="a", run="r") == ours


def test_prompt_history_says_what_sampled(warehouse: Warehouse) -> None:
    answer = asked(warehouse, "prompt_history", prompt="b")
    assert columns(answer, "run_id", "stage", "policy_id", "engine", "temperature") == [
        ("r", 0, "p0", "transformers", 1.0),
        ("r", 1, "p0", "vllm", 1.0),
        ("r", 2, "p0", None, None),  # no step is recorded of it
        ("twin", 0, "p0", "vllm", 0.7),
    ]


def test_solved_prompts(warehouse: Warehouse) -> None:
    # a: W W M R. Of the others none was unsolved, then mixed, then solved.
    assert values(asked(warehouse, "solved_prompts", run="r")) == [("a", 2, 1, 2, 2, 1, 1, "WWMR", "sums", "hard")]


def test_came_back(warehouse: Warehouse) -> None:
    answer = asked(warehouse, "came_back", run="r")
    assert columns(answer, "prompt_id", "n_revivals", "longest_absence", "outcomes") == [
        ("a", 1, 2, "WWMR"),
        ("c", 1, 1, "MWM"),
        ("d", 1, 1, "RWM"),
    ]
    assert asked(warehouse, "came_back", run="r", limit="1") == answer[:1]


def test_zero_variance_persistence(warehouse: Warehouse) -> None:
    # Two later. b: R . R; d: R . M. a: W . M, W . R; f: W . W
    answer = asked(warehouse, "zero_variance_persistence", run="r", after="2")
    assert values(answer) == approx(("all_right", 2, 2, 0.5, 0.5), ("all_wrong", 2, 3, 2 / 3, 1 / 3))


def test_zero_variance_by_stage(warehouse: Warehouse) -> None:
    assert values(asked(warehouse, "zero_variance_by_stage", run="r")) == approx(
        (0, "all_right", 2, 0, 0.0, None),  # b R R, d R W
        (0, "all_wrong", 2, 0, 0.0, None),  # a W W, f W W
        (1, "all_right", 1, 0, 0.0, None),  # b R R
        (1, "all_wrong", 4, 3, 0.75, 0.5),  # a, c, d W M; f W W
    )


def test_selected_and_skipped(tmp_path: Any) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.write(HISTORY)
    warehouse.publish()
    query = find_query("selected_and_skipped")
    assert rows(warehouse.ask(query.sql, {"run": "r"})) == [
        (1, "left_out", "easy", "below_alpha", 1, 1, 1.0),
        (1, "left_out", None, "below_alpha", 1, 1, 1.0),
        (1, "rolled_out", "hard", "explored", 1, 1, 0.0),
        (1, "selected", "hard", "top_alpha", 1, 1, 0.0),
        (1, "selected", None, "top_alpha", 1, 1, 0.5),
        (1, "skipped", "easy", "zero_variance", 2, 1, 1.0),
        (2, "left_out", "easy", "below_alpha", 1, 1, 1.0),
        (2, "left_out", None, "below_alpha", 1, 1, 0.0),
        (2, "selected", "hard", "top_alpha", 1, 1, 0.25),
        (2, "selected", None, "top_alpha", 1, 1, 0.25),
    ]


def test_hard_among_skipped(warehouse: Warehouse) -> None:
    # Known before: stage 1 a 0, b 1, f 0; stage 2 e 1/4, of another prompt nothing.
    assert values(asked(warehouse, "hard_among_skipped", run="r")) == approx(
        (1, "rolled_out", 1, 1, 1, 1.0),
        (1, "skipped", 3, 2, 1, 1 / 3),
        (2, "rolled_out", 1, 1, 0, None),
        (2, "skipped", 2, 1, 0, 0.0),
    )
    assert values(asked(warehouse, "hard_among_skipped", run="r", hard="0.25"))[3] == (2, "skipped", 2, 1, 2, 1.0)


def test_wasted_rollouts(warehouse: Warehouse) -> None:
    assert values(asked(warehouse, "wasted_rollouts", run="r")) == approx(
        (0, "offline", "transformers", 24, 16, 16 / 24, 0, 0, 240),  # a, b, d, f
        (1, "train", "vllm", 36, 28, 28 / 36, 4, 0, 360),  # all but a and d in step 2
        (2, "train", None, 12, 8, 8 / 12, 0, 2, 200),  # a, b
    )


def test_influence_and_difficulty(warehouse: Warehouse) -> None:
    assert values(asked(warehouse, "influence_and_difficulty", run="r")) == approx(
        (1, "gsm", 0.0, 2, 0.0, 0.0, 2, 0.5),  # a, f
        (1, "gsm", 0.3, 1, 0.3, None, 0, 1.0),  # e
        (1, "gsm", 0.5, 1, 0.5, None, 0, 1.0),  # c
        (1, "gsm", 1.0, 2, 0.0, 0.0, 2, 0.0),  # b, d
    )


def test_pass_rate_drift(warehouse: Warehouse) -> None:
    first, second = asked(warehouse, "pass_rate_drift", run="r")
    # Offline and online by prompt, over the stage: a b c d f, then a b c.
    offline, online = [0, 1, 0.5, 1, 0], [1 / 8, 1, 0, 1 / 8, 0]
    correlation = float(np.corrcoef(offline, online)[0, 1])
    assert list(first.values())[:7] == pytest.approx([1, 5, 0.5, 0.25, -0.25, 0.3, correlation])
    assert list(second.values())[:6] == pytest.approx([2, 3, 0.5, 0.75, 0.25, (1 + 0 + 0.25) / 3])
    assert (first["offline_engine"], first["online_engine"], first["online_policy_id"]) == (
        "transformers",
        "vllm",
        "p0",
    )


def test_selection_overlap(warehouse: Warehouse) -> None:
    # a c e, then d a
    assert values(asked(warehouse, "selection_overlap", run="r")) == approx((1, 2, 3, 2, 1, 0.25))


def test_never_visited(warehouse: Warehouse) -> None:
    assert values(asked(warehouse, "never_visited", run="r")) == [("e", "sums", "hard", 1, 2, 0.25, 1)]


def test_longest_prompts(warehouse: Warehouse) -> None:
    # c: 4 completions of 10 tokens three times, then 4 of 30; 3 of 12 graded ones right
    answer = asked(warehouse, "longest_prompts", run="r", limit="1")
    assert values(answer) == approx(("c", 16, 15.0, 40, 240, 2 / 16, 0.25, "sums", "easy"))


def test_verifier_failures(warehouse: Warehouse) -> None:
    assert values(asked(warehouse, "verifier_failures", run="r")) == approx(
        (1, "train", "exact", "sums", 36, 4, 4 / 36, 1, "c")
    )


def test_run_agreement(warehouse: Warehouse) -> None:
    offline, selected = asked(warehouse, "run_agreement", run="r", other="twin")
    # a, b, c: 0, 1, 1/2 against 0, 3/4, 1/2; b is all right in one and mixed in the other
    correlation = float(np.corrcoef([0, 1, 0.5], [0, 0.75, 0.5])[0, 1])
    assert list(offline.values())[:8] == [
        0,
        "offline",
        3,
        0.5,
        *map(pytest.approx, (1.25 / 3, 0.25 / 3, correlation, 2 / 3)),
    ]
    assert (offline["engine"], offline["other_engine"]) == ("transformers", "vllm")
    assert (offline["temperature"], offline["other_temperature"]) == (1.0, 0.7)
    # a c e against a b
    assert columns([selected], "stage", "n_both_selected", "jaccard_selected") == [(1, 1, 0.25)]


def test_run_agreement_counts_a_prompt_of_two_steps_once(tmp_path: Any) -> None:
    """It is of the pool and of a validation set: two steps of one stage have rolled it out."""
    steps = {"rollouts_train": "pool", "rollouts_validation": "held out"}
    warehouse = Warehouse(tmp_path)
    warehouse.write(
        {
            "rollout_stats": table(*(stats(f, "a", n) for f, n in (("pool", 1), ("held out", 3)))),
            "run_steps": table(
                *({"run_id": r, "stage": 0, "name": n, "fingerprint": f} for r in ("r", "s") for n, f in steps.items())
            ),
        }
    )
    warehouse.publish()
    (offline,) = asked(warehouse, "run_agreement", run="r", other="s")
    assert (offline["n_both_saw"], offline["pass_rate"], offline["absolute_difference"]) == (1, 0.5, 0.0)


def test_every_query_has_a_test_a_title_and_the_parameters_that_it_names(warehouse: Warehouse) -> None:
    for query in QUERIES.values():
        assert f"test_{query.name}" in globals()
        assert query.title.endswith((".", "?")) and len(query.title) < 118
        given = {parameter.name: "1" for parameter in query.parameters if parameter.default is None}
        warehouse.ask(query.sql, query.values(given))  # DuckDB refuses a parameter that the SQL does not have, or lacks


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("histroy", {}, r"no query is named 'histroy'; there are came_back, "),
        ("prompt_history", {}, r"'prompt_history' needs prompt \(VARCHAR\): id of the prompt"),
        ("came_back", {"run": "r", "stage": "1"}, "has no parameter 'stage'; its parameters are: run, limit"),
        ("came_back", {"run": "r", "limit": "few"}, "limit 'few': must be of type INTEGER; it is prompts to list"),
        ("hard_among_skipped", {"run": "r", "hard": "0,2"}, "hard '0,2': must be of type DOUBLE"),
    ],
)
def test_wrong_names_and_parameters_are_told_in_words(name: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(WarehouseError, match=words):
        find_query(name).values(given)
