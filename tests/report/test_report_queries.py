"""The report's SQL over a real warehouse with a fabricated run."""

from __future__ import annotations

import duckdb
import pytest
from fabricated_run import GROUP_SIZE, NASTY_PROMPT, RUN_ID, SELECTED, STEPS, WAREHOUSE, empty_warehouse, fabricate
from report_cases import load, load_all

from pipeline_lib.report import FROM_FILES, PAIR_SCHEMAS, SCHEMAS, ReportData


@pytest.fixture(scope="module")
def warehouse() -> duckdb.DuckDBPyConnection:
    connection = empty_warehouse()
    fabricate(connection)
    return connection


def test_there_is_one_query_for_each_table_but_those_of_texts(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert load_all(warehouse).keys() == SCHEMAS.keys() - FROM_FILES
    pairs = {path.stem.removeprefix("report_pair_") for path in (WAREHOUSE / "queries").glob("report_pair_*.sql")}
    assert pairs == PAIR_SCHEMAS.keys()


def test_every_query_has_the_columns_that_the_report_needs(warehouse: duckdb.DuckDBPyConnection) -> None:
    for name, table in load_all(warehouse).items():
        assert table.schema.names == SCHEMAS[name].names, name
        assert table.num_rows > 0 or name == "failures", name
    ReportData.from_tables(load_all(warehouse))


def test_a_run_that_is_not_there_has_no_rows(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert {table.num_rows for table in load_all(warehouse, "another-run").values()} == {0}


def test_a_step_that_failed_is_named_with_its_error() -> None:
    connection = empty_warehouse()
    fabricate(connection, stages=1)
    connection.execute("UPDATE steps SET status = 'failed', error = 'no <room>' WHERE fingerprint = 'train-1'")
    (row,) = load(connection, "failures").to_pylist()
    assert row == {"stage": 1, "step": "train", "error": "no <room>", "attempts": 1}


def test_run(warehouse: duckdb.DuckDBPyConnection) -> None:
    (run,) = load(warehouse, "run").to_pylist()
    assert (run["run_id"], run["policy"], run["policy_id"]) == (RUN_ID, "tiny-reasoner", "policy-0")
    assert (run["pool_size"], run["group_size"], run["alpha"]) == (60, GROUP_SIZE, 0.4)
    assert run["created_at"].isoformat() == "2026-03-01T10:00:00"


def test_stages_count_rollouts_made_and_skipped(warehouse: duckdb.DuckDBPyConnection) -> None:
    offline, first, second = load(warehouse, "stages").to_pylist()
    assert (offline["stage"], offline["rollouts"], offline["prompts_selected"]) == (0, 70 * GROUP_SIZE, None)
    for stage in (first, second):
        assert stage["prompts_selected"] == SELECTED
        assert stage["steps"] == STEPS
        assert stage["rollouts"] + stage["rollouts_skipped"] == STEPS * 10 * GROUP_SIZE
    skipped = warehouse.execute(
        "SELECT count(*) FROM sampler_decisions WHERE fingerprint = 'train-2' AND NOT keep"
    ).fetchall()[0][0]
    assert second["rollouts_skipped"] == skipped * GROUP_SIZE > 0
    assert 0 < first["prompts_without_gradient"] < first["prompts_scored"] == 60


def test_pass_rates_count_every_prompt_once_a_stage(warehouse: duckdb.DuckDBPyConnection) -> None:
    counts: dict[int, int] = {}
    for row in load(warehouse, "pass_rates").to_pylist():
        counts[row["stage"]] = counts.get(row["stage"], 0) + row["n_prompts"]
    trained = warehouse.execute(
        "SELECT count(DISTINCT prompt_id) FROM rollout_stats WHERE fingerprint = 'train-1'"
    ).fetchall()[0][0]
    assert (counts[0], counts[1]) == (60, trained)


def test_train_steps_come_in_the_order_of_the_run(warehouse: duckdb.DuckDBPyConnection) -> None:
    steps = load(warehouse, "train_steps").to_pylist()
    assert [(row["stage"], row["step"]) for row in steps] == [
        (stage, step) for stage in (1, 2) for step in range(1, STEPS + 1)
    ]


def test_the_histogram_holds_every_prompt_with_a_gradient(warehouse: duckdb.DuckDBPyConnection) -> None:
    rows = load(warehouse, "influence_histogram").to_pylist()
    counted = sum(row["n_prompts"] for row in rows if row["stage"] == 1 and row["validation_set"] == "validation")
    with_gradient = warehouse.execute(
        "SELECT count(*) FROM influence_scores"
        " WHERE fingerprint = 'score-1' AND validation_set = 'validation' AND norm > 0"
    ).fetchall()[0][0]
    assert counted == with_gradient
    widths = {round(row["cosine_high"] - row["cosine_low"], 9) for row in rows}
    assert len(widths) == 2  # one for each validation set


def test_influence_points_are_of_the_last_stage(warehouse: duckdb.DuckDBPyConnection) -> None:
    rows = load(warehouse, "influence_points").to_pylist()
    assert len(rows) == 2 * 60
    assert {row["stage"] for row in rows} == {2}
    assert sum(row["selected"] for row in rows) == 2 * SELECTED


def test_selection_shares_hold_the_pool_as_stage_0(warehouse: duckdb.DuckDBPyConnection) -> None:
    rows = load(warehouse, "selection_shares").to_pylist()
    assert {row["kind"]: row["n_prompts"] for row in rows if row["stage"] == 0} == {
        "plus": 20,
        "times": 20,
        "max": 20,
    }
    assert sum(row["n_prompts"] for row in rows if row["stage"] == 2) == SELECTED


def test_ranked_prompts_are_the_best_25_and_the_last_10(warehouse: duckdb.DuckDBPyConnection) -> None:
    rows = load(warehouse, "ranked_prompts").to_pylist()
    assert [row["rank"] for row in rows] == [*range(1, 26), *range(51, 61)]
    assert {row["stage"] for row in rows} == {2}
    assert all(row["prompt"].endswith("=") or row["prompt"] == NASTY_PROMPT for row in rows)


def test_the_pass_rate_before_is_the_latest_of_earlier_stages(warehouse: duckdb.DuckDBPyConnection) -> None:
    expected = dict(
        warehouse.execute(
            """
            SELECT prompt_id, arg_max(n_correct / n, (fingerprint = 'train-1', step)) FROM rollout_stats
            WHERE fingerprint IN ('rollouts_train-0', 'train-1') GROUP BY prompt_id
            """
        ).fetchall()
    )
    ids = dict(warehouse.execute("SELECT rank, prompt_id FROM selections WHERE fingerprint = 'select-2'").fetchall())
    for row in load(warehouse, "ranked_prompts").to_pylist():
        assert row["pass_rate"] == expected[ids[row["rank"]]]


def test_diagnoses_of_each_stage(warehouse: duckdb.DuckDBPyConnection) -> None:
    rows = load(warehouse, "diagnoses").to_pylist()
    found = {(row["stage"], row["metric"], row["subject"]): row for row in rows}
    assert len(found) == len(rows)
    for stage in (1, 2):
        for name in ("validation", "validation_hard"):
            assert found[stage, "split_half_spearman", name]["value"] == 0.61
            assert found[stage, "effective_prompts", name]["n"] > 0
        assert found[stage, "pass_rate_offline_pool", ""]["n"] == 60
        assert found[stage, "pass_rate_offline_selected", ""]["n"] == SELECTED
    assert (1, "jaccard_previous", "") not in found
    assert 0 <= found[2, "jaccard_previous", ""]["value"] <= 1


def test_rejects_are_counted_by_reason(warehouse: duckdb.DuckDBPyConnection) -> None:
    counts = {row["reason"]: row["n_rows"] for row in load(warehouse, "rejects").to_pylist()}
    assert counts == {"no_gold": 3, "conflicting_gold": 2}


def test_a_single_cosine_fills_one_bin() -> None:
    connection = empty_warehouse()
    connection.execute("INSERT INTO run_steps VALUES ('r', 1, 'score', 'f')")
    connection.execute("INSERT INTO influence_scores VALUES ('f', 'p', 'v', 0.1, 0.1, 1, 1, 'exact')")
    rows = load(connection, "influence_histogram", "r").to_pylist()
    assert [row["n_prompts"] for row in rows] == [1] + [0] * 29


def test_a_pool_of_many_prompts_makes_no_long_tables() -> None:
    connection = empty_warehouse()
    connection.execute(
        """
        INSERT INTO run_steps VALUES
            ('r', 0, 'rollouts_train', 'off'), ('r', 1, 'score', 's'), ('r', 1, 'select', 'c'), ('r', 1, 'train', 't');
        INSERT INTO ungathered VALUES ('off'), ('t');
        INSERT INTO rollout_stats BY NAME SELECT
            fingerprint, 'p' || i AS prompt_id, 0 AS step, phase, 'b' AS policy_id, 8 AS n, i % 9 AS n_correct,
            0 AS n_ungraded, CASE i % 9 WHEN 0 THEN 'all_wrong' WHEN 8 THEN 'all_right' ELSE 'mixed' END AS outcome,
            i % 9 NOT IN (0, 8) AS has_signal, 0 AS n_truncated, 1 AS mean_length, 1 AS max_length
        FROM range(10000) AS prompts (i), (VALUES ('off', 'offline'), ('t', 'train')) AS steps (fingerprint, phase);
        INSERT INTO influence_scores SELECT 's', 'p' || i, 'v', i, i, 1, i, 'exact' FROM range(10000) AS prompts (i);
        INSERT INTO selections SELECT 'c', 'p' || i, 'influence', i, i, i < 99, '', 0.5 FROM range(10000) AS prompts (i)
        """
    )
    sizes = {name: table.num_rows for name, table in load_all(connection, "r").items()}
    assert sizes.pop("influence_points") == 1500
    assert sizes["paths"] == 3 and sizes["pass_rates"] == 2 * 9
    assert max(sizes.values()) < 100
