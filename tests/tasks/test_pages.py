"""What the dashboard shows of each step, from rows in a real warehouse."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from page_cases import RUN, two_stages
from step_cases import FileStep, run_config

from pipeline_lib.report.pass_rate_picture import pass_rate_picture
from tasks.artifacts import page_of
from tasks.artifacts.pages import (
    difficulty,
    evaluations,
    prompts_read,
    report_link,
    selection,
    stages,
    training_steps,
)
from tasks.artifacts.sender import MAX_CHARACTERS, Shown
from tasks.step import perform
from warehouse import Warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return two_stages(tmp_path_factory.mktemp("pages"))


def rows(shown: Shown) -> list[dict[str, object]]:
    assert shown.type == "table"
    return json.loads(shown.text)


def test_ingest_says_what_was_left_out_and_why(warehouse: Warehouse) -> None:
    pool, held_out = rows(prompts_read(warehouse, RUN, 0))
    assert pool["rows read"] == 6 and pool["prompts"] == 4 and pool["duplicates merged"] == 1
    assert pool["left out"] == 1 and pool["why"] == "no_gold 1"
    assert held_out["left out"] == 0 and held_out["why"] == ""


def test_the_pool_is_counted_by_outcome_beside_its_picture(warehouse: Warehouse) -> None:
    shown = difficulty(warehouse, RUN, 0)
    assert shown.type == "markdown"
    assert "Of 4 prompts **2** were all right, **1** all wrong and **1** mixed." in shown.description
    picture = base64.b64decode(shown.text.partition("base64,")[2].rstrip(")"))
    assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_the_picture_has_a_bar_a_bucket_as_high_as_its_count() -> None:
    rates = {0.0: 4, 0.2: 1, 0.5: 2, 1.0: 8}
    picture = pass_rate_picture({"pass_rate": rate, "n_prompts": n} for rate, n in rates.items())
    bars = [r for r in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect") if r.get("x")]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert [round(8 * height / max(heights)) for height in heights] == [4, 1, 2, 0, 0, 8]


def test_a_picture_of_nothing_is_still_a_picture() -> None:
    assert ElementTree.fromstring(pass_rate_picture([])).tag.endswith("svg")


def test_the_selection_is_shown_in_order_with_what_was_known_before_its_stage(warehouse: Warehouse) -> None:
    first = selection(warehouse, RUN, 1)
    assert [(r["prompt"], r["pass rate"]) for r in rows(first)] == [("What is a?", "0.0%"), ("What is c?", "50.0%")]
    assert first.description == "2 of 4 prompts were selected by influence. The first 2:"
    second = selection(warehouse, RUN, 2)
    # By then stage 1 has seen prompt a again.
    assert [(r["prompt"], r["pass rate"]) for r in rows(second)] == [("What is d?", "100.0%"), ("What is a?", "25.0%")]
    assert "1 of them were taken by stage 1 as well." in second.description


def test_the_stage_table_ends_with_the_stage_that_it_is_shown_at(warehouse: Warehouse) -> None:
    _, first = rows(stages(warehouse, RUN, 1))
    assert first["rollouts"] == 25 * 8 and first["prompts skipped"] == 25 * 3
    assert first["zero variance"] == "25.0%" and first["prompts selected"] == 2
    assert (first["reward first"], first["reward last"]) == ("0.01", "0.25")
    assert first["time"] == "1 min 30 s"


def test_the_last_twenty_training_steps_are_shown_newest_first(warehouse: Warehouse) -> None:
    shown = rows(training_steps(warehouse, RUN, 1))
    assert [row["step"] for row in shown] == list(range(25, 5, -1))
    assert shown[0]["reward"] == "0.25"


def test_an_evaluation_stands_beside_the_last_stage_and_the_beginning(warehouse: Warehouse) -> None:
    average, passed = rows(evaluations(warehouse, RUN, 1))
    assert average["metric"] == "avg@4" and passed["metric"] == "pass@4"
    assert (average["initial policy"], average["now"], average["since last stage"]) == ("20.0%", "50.0%", "+30.0")
    before = rows(evaluations(warehouse, RUN, 0))
    assert [row["now"] for row in before] == ["20.0%", "60.0%"]
    assert "since last stage" not in before[0]


def test_the_report_is_linked_where_the_dashboard_of_its_root_shows_the_run(
    tmp_path: Path, set_api: Callable[[str], None]
) -> None:
    warehouse = Warehouse(tmp_path)
    set_api("http://127.0.0.1:4200/api")
    assert str(tmp_path / "reports" / "r.html") in report_link(warehouse, RUN, 2).text
    (tmp_path / "dashboard").mkdir()
    (tmp_path / "dashboard" / "address").write_text("http://127.0.0.1:4200")
    assert "(/reports/r.html)" in report_link(warehouse, RUN, 2).text
    set_api("http://elsewhere:4200/api")
    assert str(tmp_path / "reports" / "r.html") in report_link(warehouse, RUN, 2).text


@pytest.fixture
def set_api(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    contexts = []

    def set_api(url: str) -> None:
        contexts.append(temporary_settings({PREFECT_API_URL: url}))
        contexts[-1].__enter__()

    yield set_api
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def test_a_table_too_long_for_the_server_loses_its_last_rows() -> None:
    shown = Shown("", [{"n": n, "text": "x" * 1000} for n in range(500)])
    assert len(shown.text) <= MAX_CHARACTERS
    kept = [row["n"] for row in json.loads(shown.text)]
    assert kept == list(range(len(kept))) and len(kept) > 50


def test_a_step_that_a_new_run_finds_complete_is_on_its_page(tmp_path: Path) -> None:
    def page(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
        taken = warehouse.snapshot_query("SELECT 1 FROM run_steps WHERE run_id = $1 AND stage = $2", [run_id, stage])
        return Shown("", [{"steps": taken.num_rows}])

    first = FileStep(run_config(tmp_path / "root"), 1, output=tmp_path / "output")
    perform(first)
    again = replace(first, run=run_config(tmp_path / "root", name="another"))
    assert perform(again).cached
    assert page_of(page, Warehouse(first.root), again).data == [{"steps": 1}]
