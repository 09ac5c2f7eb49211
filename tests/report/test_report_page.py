"""The page: what it holds, what it says when there is nothing, what it escapes."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from fabricated_run import NASTY_PROMPT, RUN_ID, empty_warehouse, fabricate
from report_cases import load_all, whole_report

from pipeline_lib.report import SCHEMAS, ReportData, render_report
from pipeline_lib.report.diagnosis import Cell, diagnosis
from pipeline_lib.report.headline import PassRate, headline
from pipeline_lib.report.influence_charts import influence_distribution

TITLES = [
    "Stages at a glance",
    "Held-out evaluation",
    "Difficulty over the stages",
    "Which way the prompts went",
    "Groups that teach nothing",
    "What the rollouts were worth",
    "Rollouts made and skipped",
    "Batch size and refills",
    "Training curves",
    "Where the time went",
    "Influence scores",
    "Influence against pass rate, stage 2",
    "Drift from the rollouts that were scored",
    "What was selected",
    "How far to trust the ranking",
    "Prompts by rank, stage 2",
    "Left out at ingest",
    "Sample completions",
]


@pytest.fixture(scope="module")
def two_stages() -> ReportData:
    connection = empty_warehouse()
    fabricate(connection)
    return whole_report(connection)


@pytest.fixture(scope="module")
def page(two_stages: ReportData) -> str:
    return render_report(two_stages)


def words_of(page: str) -> str:
    """What a reader sees, without scripts and tags."""
    return " ".join(re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.S).split())


def test_sections_come_in_order(page: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == TITLES
    assert f"<h1>{RUN_ID}</h1>" in page
    assert "tiny-reasoner" in page and "2026-03-01<small>10:00 UTC, last written 2026-03-01 11:30" in page


def test_headline_shows_pass_rates_before_and_after(page: str) -> None:
    words = words_of(page)
    assert "12.0 ± 2.1% → 26.0 ± 2.1%" in words
    assert "56.0 ± 2.1% → 70.0 ± 2.1%" in words


def test_plotly_comes_once_and_nothing_comes_from_the_network(page: str) -> None:
    assert page.count("plotly.js v") == 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page.replace("&lt;", ""))
    assert len(re.findall(r'id="chart-\d+"', page)) == 25


def test_text_from_data_is_escaped(page: str) -> None:
    assert "<script>console.error" not in page
    assert "<img src=x" not in page
    assert "<b>4</b> and 5" not in page and "&lt;b&gt;4&lt;/b&gt; and 5" in page
    assert "数学 🙂" in page


def test_kinds_cannot_end_the_script_or_add_markup(two_stages: ReportData) -> None:
    rows = [{**row, "kind": f"{row['kind']} {NASTY_PROMPT}"} for row in two_stages.selection_shares.to_pylist()]
    shares = pa.Table.from_pylist(rows, schema=SCHEMAS["selection_shares"])
    page = render_report(replace(two_stages, selection_shares=shares, samples=SCHEMAS["samples"].empty_table()))
    assert '"plus &lt;\\u002fscript&gt;' in page  # plotly would read a bare < as markup
    assert "<script>console.error" not in page
    assert "Sample completions" not in page


def test_a_run_that_has_just_begun_says_so_in_words() -> None:
    connection = empty_warehouse()
    fabricate(connection, finished=False)
    page = render_report(ReportData.from_tables(load_all(connection)))
    words = words_of(page)
    for sentence in (
        "No step of this run has begun yet.",
        "No evaluation has finished yet.",
        "No prompt has been rolled out yet.",
        "No training stage has rolled a prompt out yet",
        "No training step has finished yet.",
        "No training step has rolled out a prompt yet.",
        "No step has finished yet.",
        "No stage has been scored yet.",
        "No stage has selected its prompts yet.",
        "No row was left out.",
    ):
        assert sentence in words
    assert "chart-" not in page and "plotly.js v" not in page


def test_a_run_before_its_first_stage_shows_where_it_starts() -> None:
    connection = empty_warehouse()
    fabricate(connection, stages=0)
    words = words_of(render_report(ReportData.from_tables(load_all(connection))))
    assert "0, offline – – 560 – 12.0 ± 2.1%" in words
    assert "No training step has finished yet." in words


def test_a_failed_run_says_what_failed_and_shows_what_was_done_before() -> None:
    connection = empty_warehouse()
    fabricate(connection, stages=1)
    connection.execute(
        "UPDATE steps SET status = 'failed', attempts = 3, error = '<b>No</b> room' WHERE name = 'train'"
    )
    page = render_report(ReportData.from_tables(load_all(connection)))
    assert "stage 1 · train failed at attempt 3." in words_of(page)
    assert "&lt;b&gt;No&lt;/b&gt; room" in page and "<b>No" not in page
    assert "Difficulty over the stages" in page


def test_a_stage_without_scores_or_skips_has_sentences_for_their_charts() -> None:
    connection = empty_warehouse()
    fabricate(connection, stages=1, strategy="random", skips=False)
    words = html.unescape(words_of(render_report(ReportData.from_tables(load_all(connection)))))
    assert "Skip rate by training step: The sampler skipped no prompt" in words
    assert "The selection strategy “random” computes no influence scores." in words
    assert "Drift, KL: Not measured" in words
    assert "The lake has no completions of these prompts." in words


def test_completions_stand_under_their_prompts(page: str) -> None:
    assert page.count("<details>") == 2 * 35
    assert page.count("&lt;img src=x onerror=") >= 2 * 35


def test_a_stage_without_its_evaluation_has_no_pass_rate_after() -> None:
    connection = empty_warehouse()
    fabricate(connection, stages=1)
    connection.execute("DELETE FROM evaluations WHERE fingerprint = 'evaluate-1'")
    last = headline(ReportData.from_tables(load_all(connection))).rows[-1]
    assert last.pass_rates == [PassRate("12.0 ± 2.1%", ""), PassRate("42.0 ± 2.1%", "")]


def test_the_report_says_why_there_are_no_influence_scores(two_stages: ReportData) -> None:
    def said(data: ReportData) -> str:
        (panel,) = influence_distribution(data).panels
        return panel.missing

    unscored = replace(two_stages, influence_histogram=SCHEMAS["influence_histogram"].empty_table())
    assert said(unscored) == "No prompt of the pool has a gradient: every group was all right or all wrong."
    unscored = replace(unscored, stages=SCHEMAS["stages"].empty_table())
    assert said(unscored) == "No stage has been scored yet."
    random = pa.Table.from_pylist([{**two_stages.run.to_pylist()[0], "strategy": "random"}])
    assert said(replace(unscored, run=random)) == ("The selection strategy “random” computes no influence scores.")


def test_the_diagnosis_has_a_row_a_metric_and_set_and_a_column_a_stage(two_stages: ReportData) -> None:
    rows = [
        {"stage": 1, "subject": "v", "metric": "split_half_spearman", "value": 0.614, "n": 40},
        {"stage": 2, "subject": "v", "metric": "split_half_spearman", "value": None, "n": 0},
        {"stage": 2, "subject": "", "metric": "jaccard_previous", "value": 0.25, "n": 1200},
        {"stage": 1, "subject": "", "metric": "share_tied", "value": 0.5, "n": 8},
        {"stage": 1, "subject": "<b>u</b>", "metric": "share_tied", "value": 0.125, "n": 8},
    ]
    data = replace(two_stages, diagnoses=pa.Table.from_pylist(rows, schema=SCHEMAS["diagnoses"]))
    told = diagnosis(data)
    assert told.stages == [1, 2]
    assert [(metric.title, row.subject, row.cells) for metric in told.metrics for row in metric.rows] == [
        ("Split-half rank correlation", "v", [Cell("0.61", 40), Cell("", 0)]),
        ("Ties", "whole", [Cell("50.0%", 8), Cell("", None)]),
        ("Ties", "<b>u</b>", [Cell("12.5%", 8), Cell("", None)]),
        ("Overlap with the stage before", "whole", [Cell("", None), Cell("0.25", 1200)]),
    ]
    page = render_report(data)
    assert "<b>u</b>" not in page
    assert "whole – 0.25 n 1,200" in words_of(page)


def test_the_page_explains_every_metric_that_it_shows(page: str, two_stages: ReportData) -> None:
    shown = diagnosis(two_stages).metrics
    assert {"Split-half reliability", "Score exactly 0", "Pass rate of the selected, in training"} < {
        metric.title for metric in shown
    }
    words = html.unescape(words_of(page))
    assert all(f"{metric.title} {metric.explanation}" in words for metric in shown)


def test_what_was_not_recorded_is_said(page: str) -> None:
    assert "KL to the stage&#39;s first policy: Not recorded in this run." in page


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(KeyError):
        ReportData.from_tables({"pass_rates": SCHEMAS["rejects"].empty_table()})
