"""A stage as its user meets it on the dashboard: the form, the failure, Retry, and what its page shows."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from browser_cases import CHROMIUM, browser_page, fill_editor, look, press
from dashboard_cases import Dashboard, tiny_parameters
from flow_cases import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
NO_BROWSER = CHROMIUM is None or importlib.util.find_spec("playwright") is None


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    dashboard = Dashboard(tmp_path_factory.mktemp("stage_page"))
    try:
        dashboard.wait()
        yield dashboard
    finally:
        dashboard.end()


def artifacts(dashboard: Dashboard, run: str) -> dict[str, dict[str, Any]]:
    found = dashboard.ask("/artifacts/filter", {"flow_runs": {"id": {"any_": [run]}}})
    ours = [artifact for artifact in found if artifact["key"]]
    by_key = {artifact["key"]: artifact for artifact in ours}
    assert len(by_key) == len(ours), "a run shows each of its artifacts once"
    return by_key


def test_a_stage_shows_its_selection_steps_evaluation_and_progress(dashboard: Dashboard) -> None:
    parameters = tiny_parameters(dashboard.root)
    run = dashboard.create_run("stage", parameters | {"stage": 1})
    dashboard.wait_for(run, "Finished")
    shown = artifacts(dashboard, run)
    parts = {"progress", "selection", "train-steps", "stages", "evaluation", "report"}
    assert {key for key in shown if key.startswith("tiny-stage-1")} == {f"tiny-stage-1-{part}" for part in parts}
    assert len(json.loads(shown["tiny-stage-1-train-steps"]["data"])) == parameters["config"]["train"]["steps"]
    chosen = json.loads(shown["tiny-stage-1-selection"]["data"])
    assert [row["rank"] for row in chosen] == list(range(1, len(chosen) + 1)) and chosen[0]["prompt"]
    sets = {row["set"] for row in json.loads(shown["tiny-stage-1-evaluation"]["data"])}
    assert sets == {"targeted", "untargeted"}
    assert "report is done" in shown["tiny-stage-1-progress"]["description"]
    # The stages' table of the training step was replaced by that of the evaluation, which took time as well.
    assert [row["stage"] for row in json.loads(shown["tiny-stage-1-stages"]["data"])] == [0, 1]


def test_the_dashboard_serves_the_reports_of_its_root_and_nothing_else(dashboard: Dashboard) -> None:
    reports = dashboard.root / "reports"
    reports.mkdir(exist_ok=True)
    (reports / "tiny.html").write_text("<p>the report</p>")
    (reports / "link.html").symlink_to(dashboard.root / "warehouse.duckdb")

    def fetch(path: str) -> tuple[int, str]:
        # Not by httpx, which would tidy the dots away.
        connection = HTTPConnection(dashboard.url.removeprefix("http://"), timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    assert fetch("/reports/tiny.html") == (200, "<p>the report</p>")
    for path in ("../dashboard/address", "%2e%2e/dashboard/address", "..%2fdashboard/address", "link.html", "no.html"):
        status, said = fetch(f"/reports/{path}")
        assert status == 404 and dashboard.url not in said, path


@pytest.mark.skipif(NO_BROWSER, reason="needs chromium, and the package playwright")
def test_in_a_browser_a_failed_stage_is_retried_and_its_artifacts_are_read(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    pictures = tmp_path / "pictures"
    config = tiny_parameters(dashboard.root, name="typed", seed=4)["config"]
    stray = dashboard.root / "stages" / "typed"
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("a file of that name, where the stage wants a directory")
    with browser_page(dashboard.url) as page:
        page.goto("/v2/deployments", wait_until="commit")
        page.get_by_role("link", name="stage", exact=True).first.wait_for()
        look(page, pictures, "1-deployments")
        page.goto(f"/v2/deployments/deployment/{dashboard.deployment('stage')}/run", wait_until="commit")
        page.get_by_role("button", name="Open menu").first.wait_for()
        look(page, pictures, "2-form")
        # A whole config is pasted, as few would type it into the nested fields.
        page.get_by_role("button", name="Open menu").first.click()
        page.get_by_role("menuitem", name="Use JSON Input").click()
        fill_editor(page, json.dumps(config, indent=1))
        look(page, pictures, "3-config")
        press(page, page.get_by_role("button", name="Submit"), "/create_flow_run")

        def created() -> list[dict[str, Any]]:
            runs = dashboard.ask("/flow_runs/filter", {"sort": "START_TIME_DESC"})
            return [run for run in runs if run["parameters"].get("config", {}).get("name") == "typed"]

        wait_until(lambda: bool(created()), "run of the form")
        [run] = [run["id"] for run in created()]
        dashboard.wait_for(run, "Failed")
        page.goto(f"/v2/runs/flow-run/{run}", wait_until="commit")
        page.get_by_text("Failed", exact=True).first.wait_for()
        look(page, pictures, "4-failed")
        stray.unlink()
        page.get_by_role("button", name="Open menu").first.click()
        page.get_by_role("menuitem", name="Retry").click()
        look(page, pictures, "5-retry")
        dialog = page.get_by_role("dialog").or_(page.get_by_role("alertdialog"))
        press(page, dialog.get_by_role("button", name="Retry"), "/set_state")
        dashboard.wait_for(run, "Finished", attempt=2)
        page.goto(f"/v2/runs/flow-run/{run}", wait_until="commit")
        page.get_by_role("tab", name="Task Runs").click()
        page.get_by_text("Cached", exact=True).nth(2).wait_for()  # score, select, diagnose
        page.get_by_text("Cached", exact=True).first.scroll_into_view_if_needed()
        look(page, pictures, "6-cached")
        page.get_by_role("tab", name="Artifacts").click()
        page.get_by_text("typed-stage-1-evaluation").first.wait_for()
        page.mouse.wheel(0, 2000)
        look(page, pictures, "7-artifacts")
        selection = artifacts(dashboard, run)["typed-stage-1-selection"]
        page.goto(f"/v2/artifacts/artifact/{selection['id']}", wait_until="commit")
        best = json.loads(selection["data"])[0]
        page.get_by_text(best["prompt"], exact=True).first.wait_for()
        look(page, pictures, "8-selection")
    assert "typed" in created()[0]["name"] and len(created()) == 1
    assert len(list(pictures.iterdir())) == 8
