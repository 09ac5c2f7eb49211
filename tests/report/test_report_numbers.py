"""What each chart shows, against numbers worked out by hand from the runs of small_runs.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pytest
from small_runs import report_of, warehouse_of_two

from pipeline_lib.report import SCHEMAS, ReportData
from pipeline_lib.report.batch_charts import batches
from pipeline_lib.report.difficulty_charts import pass_rate_distribution
from pipeline_lib.report.drift_charts import drift
from pipeline_lib.report.figure import Section
from pipeline_lib.report.influence_charts import influence_distribution
from pipeline_lib.report.information_charts import information
from pipeline_lib.report.path_charts import outcome_paths
from pipeline_lib.report.sampler_charts import waste
from pipeline_lib.report.time_charts import seconds_by_group, times, unit_of


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return report_of(warehouse_of_two(tmp_path_factory.mktemp("numbers")), "ours")


def figures(section: Section) -> list[go.Figure]:
    return [panel.figure for panel in section.panels]


def traces(figure: go.Figure) -> dict[str, list[float]]:
    return {trace.name: list(trace.y) for trace in figure.data}


def table_of(data: ReportData, name: str, **columns: Any) -> ReportData:
    """`data` with every row of one table changed."""
    rows = [{**row, **columns} for row in getattr(data, name).to_pylist()]
    return replace(data, **{name: pa.Table.from_pylist(rows, schema=SCHEMAS[name])})


def test_a_column_of_the_difficulty_map_is_a_stage_and_adds_up_to_all_its_prompts(ours: ReportData) -> None:
    (figure,) = figures(pass_rate_distribution(ours))
    (heat,) = figure.data
    assert list(heat.x) == ["pool<br>4", "1<br>3", "2<br>2"]
    assert list(heat.y) == ["0%", "≤25%", "≤50%", "≤75%", "&lt;100%", "100%"]
    # Pool: 0, 2/4, 4/4, 1/4. Stage 1: a 1 of 8, b 9 of 12, c 4 of 4. Stage 2: a 4 of 4, d 0 of 4.
    columns = [list(column) for column in zip(*heat.customdata, strict=True)]
    assert columns == [[1, 1, 1, 0, 0, 1], [0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 1]]
    assert [sum(column) for column in zip(*heat.z, strict=True)] == pytest.approx([1, 1, 1])


def test_every_prompt_flows_from_stage_to_stage(ours: ReportData) -> None:
    found = {
        (row["stage"], row["outcome"], row["next_stage"], row["next_outcome"]): row["n_prompts"]
        for row in ours.paths.to_pylist()
    }
    assert found == {
        (0, "W", 1, "M"): 1,  # a: never right, then 1 of 4
        (0, "M", 1, "M"): 1,  # b: 2 of 4, then at last 3 of 4
        (0, "R", 1, "R"): 1,  # c
        (0, "M", 1, "-"): 1,  # d was not rolled out in stage 1
        (1, "M", 2, "R"): 1,
        (1, "M", 2, "-"): 1,
        (1, "R", 2, "-"): 1,
        (1, "-", 2, "W"): 1,
    }
    (figure,) = figures(outcome_paths(ours))
    (flow,) = figure.data
    labels = [
        ["all right 1", "mixed 2", "all wrong 1"],
        ["all right 1", "mixed 2", "not seen 1"],
        ["all right 1", "all wrong 1", "not seen 2"],
    ]
    assert list(flow.node.label) == [label for column in labels for label in column]
    named = {(flow.node.label[s], flow.node.label[t]) for s, t in zip(flow.link.source, flow.link.target, strict=True)}
    assert ("not seen 1", "all wrong 1") in named and sum(flow.link.value) == 8
    # A column of 4 prompts in 88% of the height, as there are three gaps of 4% at most.
    assert list(flow.node.y[:3]) == pytest.approx([0.11, 0.48, 0.85])


def test_zero_variance_groups_and_skips_are_shares_of_their_own_wholes(ours: ReportData) -> None:
    zero_variance, skips = figures(waste(ours))
    assert traces(zero_variance) == {
        "all wrong": [0.5, 0, 0, 0.5],
        "all right": [0, pytest.approx(2 / 3, abs=1e-4), 0, 0.5],
        "mixed": [0.5, pytest.approx(1 / 3, abs=1e-4), 1, 0],
    }
    assert traces(skips) == {"skip rate": [0, 0.25, 0.5, 0.6], "rising with the run": [0.2, 0.6]}


def test_the_healthy_bands_are_drawn_and_named_with_where_they_come_from(ours: ReportData) -> None:
    section = waste(ours)
    assert "rule of thumb" in section.caption and "2506.02177" in section.caption
    for figure, band, name in zip(
        figures(section),
        ((0.2, 0.4), (0.2, 0.6)),
        ("healthy: 20–40%", "healthy: from about 20% to about 60%"),
        strict=True,
    ):
        boxes = [(shape.y0, shape.y1) for shape in figure.layout.shapes if shape.type == "rect"]
        assert boxes == [band]
        assert name in {annotation.text for annotation in figure.layout.annotations}


def test_information_per_rollout_is_the_mean_of_p_times_1_less_p(ours: ReportData) -> None:
    figure, _ = figures(information(ours))
    # a, b: (0 + 1/4) / 2; a, b, c: (3/16 + 0 + 0) / 3; b: 3/16; a, d: 0.
    assert traces(figure) == {"trained on": [0.125, 0.0625, 0.1875, 0]}
    lines = [shape.y0 for shape in figure.layout.shapes if shape.xref == "x domain"]
    assert lines == [(0 + 1 / 4 + 0 + 3 / 16) / 4]


def test_effective_prompts_are_the_exponential_of_the_entropy_of_the_groups_with_signal(ours: ReportData) -> None:
    _, figure = figures(information(ours))
    # Stage 1: two of the three groups with signal are b's, one is a's: exp(entropy) = 3 / 2^(2/3). Stage 2 has none.
    assert traces(figure) == {
        "selected": [3, 2],
        "rolled out": [3, 2],
        "with signal": [2, 0],
        "effective": [pytest.approx(3 / 2 ** (2 / 3)), None],
    }


def test_batches_and_refills_are_counted_by_step(ours: ReportData) -> None:
    sizes, refills = figures(batches(ours))
    assert traces(sizes) == {
        "proposed": [2, 4, 2, 5],
        "rolled out": [2, 3, 1, 2],
        "trained on": [1, 1, 1, 0],
        "carried over": [0, 1, 0, 0],
    }
    assert traces(refills) == {"refills": [0, 1, 0, 2]}


def test_time_is_counted_by_step_of_the_pipeline_and_by_phase_of_training(ours: ReportData) -> None:
    assert seconds_by_group(ours) == {
        "prepare": {0: 5},
        "rollouts": {0: 100},
        "evaluate": {0: 40, 1: 40, 2: 40},
        "score": {1: 60, 2: 60},
        "select": {1: 2, 2: 2},
        "train": {1: 300, 2: 200},
    }
    stages, steps = figures(times(ours))
    assert {trace.name: list(trace.x) for trace in stages.data}["train"] == pytest.approx([0, 5, 10 / 3], rel=1e-4)
    assert stages.layout.xaxis.title.text == "minutes"
    assert traces(steps) == {"rollout": [6.0] * 4, "verify": [1.0] * 4, "update": [2.0] * 4, "rest": [1.0] * 4}


@pytest.mark.parametrize(("seconds", "unit"), [(0, "seconds"), (119, "seconds"), (120, "minutes"), (7200, "hours")])
def test_the_unit_of_time_is_one_that_can_be_read(seconds: float, unit: str) -> None:
    assert unit_of(seconds)[1] == unit


def test_entropy_of_the_influence_is_a_share_of_the_largest_possible(ours: ReportData) -> None:
    figure = influence_distribution(ours).panels[-1].figure
    # 2 of 4 effective: ln 2 / ln 4. A set where one prompt alone has influence has no entropy to speak of.
    assert traces(figure) == {"gsm": [pytest.approx(0.5), 0]}
    assert list(figure.data[0].x) == ["1", "2"]


def test_drift_is_drawn_by_stage_beside_the_limits_of_the_config(ours: ReportData) -> None:
    kl, ess = figures(drift(ours))
    assert traces(kl) == {"median": [0, pytest.approx(0.2)], "95th percentile": [0, pytest.approx(0.29)]}
    assert traces(ess) == {"median": [1, 0.5], "5th percentile": [1, 0.5]}
    assert {a.text for a in kl.layout.annotations} == {"influence.max_kl = 0.1"}
    assert {a.text for a in ess.layout.annotations} == {"influence.min_ess = 0.5"}


def test_a_sampler_that_skips_nothing_has_a_sentence_for_a_chart(ours: ReportData) -> None:
    _, skips = waste(table_of(ours, "train_steps", prompts_skipped=0)).panels
    assert skips.figure is None and "skipped no prompt" in skips.missing
    _, refills = batches(table_of(ours, "train_steps", generation_rounds=1)).panels
    assert refills.figure is None and refills.missing.startswith("One round")


def test_a_run_that_has_only_begun_has_sentences_and_no_charts(tmp_path: Path) -> None:
    data = report_of(warehouse_of_two(tmp_path), "begun")
    for make in (
        pass_rate_distribution,
        outcome_paths,
        waste,
        information,
        batches,
        times,
        drift,
        influence_distribution,
    ):
        panels = make(data).panels
        assert panels and all(panel.figure is None and panel.missing.endswith((".", "!")) for panel in panels), make
