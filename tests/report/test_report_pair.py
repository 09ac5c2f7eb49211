"""Two runs side by side, against numbers worked out by hand from the runs of small_runs.py."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_runs import pair_of, report_of, warehouse_of_two
from typer.testing import CliRunner
from warehouse_rows import stats, table

from flows.cli import app
from pipeline_lib.report import PairData, render_pair
from pipeline_lib.report.pair.charts import (
    chance_jaccard,
    difficulty_of_both,
    evaluations_of_both,
    jaccard,
    paired_differences,
    selected_by_both,
)
from pipeline_lib.report.pair.config_difference import config_difference, flatten
from pipeline_lib.report.pair.cost import Point, accuracy_for_cost, cost_curves, cost_to_accuracy
from tasks.report import report_path, write_pair_report, write_report
from tasks.report_texts import ranked_completions
from warehouse import Warehouse, WarehouseError
from warehouse import warehouse as module


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return warehouse_of_two(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def pair(warehouse: Warehouse) -> PairData:
    return pair_of(warehouse)


def test_the_configs_differ_in_the_keys_that_are_named(pair: PairData) -> None:
    assert config_difference(pair) == [
        ("selection.type", "influence", "random"),
        ("selection.alpha", "0.5", "0.75"),
        ("train.sampler.type", "greso", "uniform"),
        ("prompts.train.1.count", "–", "2"),
    ]


def test_a_config_is_flattened_to_its_leaves() -> None:
    tree = {"a": {"b": [1, {"c": None}], "d": []}, "e": "x"}
    assert list(flatten(tree)) == [("a.b.0", "1"), ("a.b.1.c", "null"), ("a.d", "[]"), ("e", "x")]


def test_differences_are_paired_by_prompt(pair: PairData) -> None:
    start, first, last = pair.differences.to_pylist()
    assert (start["stage"], start["difference"], start["standard_error"]) == (0, 0, 0)  # one step of both
    # x 1/4 -> 2/4, y 2/4 -> 1/4, z 2/4 -> 4/4: differences 1/4, -1/4, 1/2, mean 1/6, squares about it 7/24.
    assert (first["stage"], first["other_stage"], first["n_prompts"]) == (1, 1, 3)
    assert first["difference"] == pytest.approx(1 / 6)
    assert first["standard_error"] == pytest.approx(math.sqrt(7 / 24 / 2 / 3))
    assert (first["n_better"], first["n_worse"]) == (2, 1)
    # The last of each: x 1/4 -> 2/4, y 4/4 -> 1/4, z 2/4 -> 4/4.
    assert (last["stage"], last["other_stage"]) == (2, 1)
    assert last["difference"] == pytest.approx(0)
    (panel,) = paired_differences(pair).panels
    assert list(panel.figure.data[0].y) == pytest.approx([0, 1 / 6])  # only where the stages are the same
    assert list(panel.figure.data[0].error_y.array) == pytest.approx([0, math.sqrt(7 / 144)])


def test_cost_adds_up_from_stage_to_stage_without_the_evaluations(pair: PairData) -> None:
    ours, theirs = (cost_curves(side)["gsm"] for side in pair.sides)
    # 16 rollouts offline, then 24 and 8; 10 tokens each; 105 s, then 362 and 262.
    assert ours == [
        Point(0, 0.25, 0.125, 16, 160, 105),
        Point(1, pytest.approx(5 / 12), 0.125, 40, 400, 467),
        Point(2, pytest.approx(7 / 12), 0.125, 48, 480, 729),
    ]
    assert theirs == [Point(0, 0.25, 0.125, 16, 160, 105), Point(1, pytest.approx(7 / 12), 0.125, 28, 280, 507)]


def test_the_cost_to_a_pass_rate_is_that_of_the_first_stage_at_or_above_it(pair: PairData) -> None:
    reached = cost_to_accuracy(pair)
    assert [row.value for row in reached] == pytest.approx([5 / 12, 7 / 12])
    assert [[point and point.stage for point in row.points] for row in reached] == [[1, 1], [2, 1]]
    rollouts, tokens, seconds = (panel.figure for panel in accuracy_for_cost(pair).panels)
    assert [list(trace.x) for trace in rollouts.data] == [[16, 40, 48], [16, 28]]
    assert [list(trace.x) for trace in tokens.data] == [[160, 400, 480], [160, 280]]
    assert list(seconds.data[1].x) == pytest.approx([105 / 60, 507 / 60])
    assert list(seconds.data[1].error_y.array) == [0.125, 0.125]


def test_a_pass_rate_that_a_run_never_reached_has_no_cost(warehouse: Warehouse) -> None:
    data = pair_of(warehouse)
    low = PairData(data.theirs, report_of(warehouse, "begun"), data.differences, data.overlap)
    assert cost_to_accuracy(low) == []
    swapped = cost_to_accuracy(pair_of(warehouse, "theirs", "ours"))
    assert [[point and point.stage for point in row.points] for row in swapped] == [[1, 1], [1, 2]]


def test_overlap_is_compared_with_what_chance_would_give(pair: PairData) -> None:
    (row,) = pair.overlap.to_pylist()
    # ours: b, a, c of 4; theirs: c, b.
    assert (row["n_selected"], row["n_other_selected"], row["n_both_selected"]) == (3, 2, 2)
    assert jaccard(row) == pytest.approx(2 / 3)
    assert chance_jaccard(row) == pytest.approx(1.5 / 3.5)  # 3 * 2 / 4 by chance
    assert chance_jaccard({**row, "n_other_pool": 5}) is None
    (panel,) = selected_by_both(pair).panels
    assert [list(trace.y) for trace in panel.figure.data] == [pytest.approx([2 / 3]), pytest.approx([1.5 / 3.5])]


def test_evaluations_lie_over_each_other_and_difficulties_side_by_side(pair: PairData) -> None:
    (panel,) = evaluations_of_both(pair).panels
    assert {trace.name: list(trace.x) for trace in panel.figure.data} == {
        "ours, avg@4": [0, 1, 2],
        "theirs, avg@4": [0, 1],
    }
    assert [panel.title for panel in difficulty_of_both(pair).panels] == ["ours", "theirs"]


@pytest.mark.parametrize("write", [write_report, write_pair_report])
def test_a_page_is_of_one_snapshot_whatever_is_published_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Path]
) -> None:
    warehouse = warehouse_of_two(tmp_path)
    runs = ["ours"] if write is write_report else ["ours", "theirs"]
    alone = write(warehouse, *runs).read_text()
    fetch = module._fetch

    def beside_a_run(*arguments: Any) -> pa.Table:
        answer = fetch(*arguments)
        monkeypatch.setattr(module, "_fetch", fetch)
        warehouse.write({"rollout_stats": table(*(stats("off", f"new{i}", 0) for i in range(99)))})
        warehouse.publish()
        return answer

    monkeypatch.setattr(module, "_fetch", beside_a_run)
    assert write(warehouse, *runs).read_text() == alone
    assert write(warehouse, *runs).read_text() != alone


def test_the_page_says_what_differs_and_needs_nothing_from_the_network(pair: PairData) -> None:
    page = render_pair(pair)
    words = " ".join(re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.S).split())
    assert "train.sampler.type greso uniform" in words
    assert "gsm 1 3 +16.7 ± 22.0% +0.8 2 1" in words
    assert "gsm 2 against 1 3 " in words
    assert "gsm 58.3% 48 rollouts, 480 tokens, 12.2 min stage 2 28 rollouts, 280 tokens, 8.4 min stage 1" in words
    assert page.count("plotly.js v") == 1 and not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_two_runs_that_have_nothing_in_common_have_sentences_for_charts(warehouse: Warehouse) -> None:
    page = render_pair(pair_of(warehouse, "ours", "begun"))
    for sentence in (
        "No stage at which both runs were evaluated on the same prompts.",
        "No evaluation set is common to both runs.",
        "No stage at which both runs have selected prompts.",
        "No prompt has been rolled out yet.",
    ):
        assert sentence in page


def test_the_command_writes_one_page_for_two_runs(warehouse: Warehouse) -> None:
    path = report_path(warehouse.root, "ours", "theirs")
    answer = CliRunner().invoke(app, ["report", "ours", "theirs", "--root", str(warehouse.root)])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.strip() == str(path) and "ours" in path.read_text()


@pytest.mark.parametrize(("other", "said"), [("nobody", "no run is named 'nobody'"), ("ours", "is named twice")])
def test_a_second_run_must_be_another_one_that_is_known(warehouse: Warehouse, other: str, said: str) -> None:
    with pytest.raises(WarehouseError, match=said):
        write_pair_report(warehouse, "ours", other)


def test_ranked_prompts_show_a_right_and_a_wrong_completion_of_those_they_were_ranked_by(warehouse: Warehouse) -> None:
    ranked = warehouse.named_query("report_ranked_prompts", run_id="ours")
    found = [
        (row["prompt_id"], row["completion"], row["correct"], row["policy"])
        for row in ranked_completions(warehouse.snapshot_query, warehouse.root, "ours", ranked).to_pylist()
    ]
    assert sorted(found) == [
        ("a", "a0 <i>", False, "initial policy"),
        ("b", "b0 <i>", True, "initial policy"),
        ("b", "b2 <i>", False, "initial policy"),
        ("c", "c0 <i>", True, "initial policy"),
    ]  # the file of d is gone


def test_completions_are_escaped_on_the_page(warehouse: Warehouse) -> None:
    page = Path(write_report(warehouse, "ours")).read_text()
    assert "b2 &lt;i&gt;" in page and "b2 <i>" not in page
    assert "&lt;a&gt;?" in page and "<a>?" not in page
