"""The pages in a real browser: every chart drawn, no error on the console, no sideways scrolling on a phone, and print.

What was seen is kept as pictures beside the test's other files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fabricated_run import OTHER_ID, empty_warehouse, fabricate
from report_cases import load_pair, whole_report

from pipeline_lib.report import render_pair, render_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-3d-apis", "--disable-dev-shm-usage"]
PATIENCE_MS = 120_000
DESKTOP, PHONE = (1200, 900), (390, 844)
A4_WIDTH = 186 / 25.4 * 96
"""In pixels, between the margins."""
CHARTS = """() => [...document.querySelectorAll(".js-plotly-plot")].map((chart) => {
  const marks = chart.querySelectorAll(":is(.scatterlayer, .barlayer, .heatmaplayer, .sankey) :is(path, image)");
  return {id: chart.id, marks: marks.length, width: chart.querySelector(".main-svg").clientWidth};
})"""
SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll(".scroll, figure, .js-plotly-plot")]
  .filter((part) => part.scrollWidth > part.clientWidth + 1)
  .map((part) => `${part.tagName} ${part.className} ${part.scrollWidth} > ${part.clientWidth}`)"""
REMEMBER_WIDTHS = """() => addEventListener("beforeprint", () => {
  const charts = [...document.querySelectorAll(".js-plotly-plot .main-svg:first-child")];
  window.printed = charts.map((chart) => chart.clientWidth);
  const flows = [...document.querySelectorAll(".sankey-link")];
  window.moving = flows.filter((flow) => getComputedStyle(flow).opacity !== "1").length;
  window.closed = document.querySelectorAll("details:not([open])").length;
})"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report-pages")
    connection = empty_warehouse()
    fabricate(connection)
    fabricate(connection, run_id=OTHER_ID, strategy="random", skips=False, seed=8)
    (directory / "one.html").write_text(render_report(whole_report(connection)), encoding="utf-8")
    (directory / "two.html").write_text(render_pair(load_pair(connection)), encoding="utf-8")
    return directory


@contextmanager
def opened(path: Path, size: tuple[int, int]) -> Iterator[tuple[Any, list[str]]]:
    """The page in a window of that size, and what its console has said."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        viewport: Any = {"width": size[0], "height": size[1]}
        page = browser.new_page(viewport=viewport)
        page.set_default_timeout(PATIENCE_MS)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        yield page, said
        browser.close()


@pytest.mark.parametrize("name", ["one", "two"])
def test_every_chart_is_drawn_and_the_console_stays_clean(pages: Path, name: str) -> None:
    with opened(pages / f"{name}.html", DESKTOP) as (page, said):
        charts = page.evaluate(CHARTS)
        page.screenshot(path=pages / f"{name}-desktop.png", full_page=True)
    assert said == []
    assert len(charts) == (pages / f"{name}.html").read_text().count('<div id="chart-') > 8
    assert all(chart["marks"] > 0 and chart["width"] > 300 for chart in charts), charts


@pytest.mark.parametrize("name", ["one", "two"])
def test_on_a_phone_nothing_has_to_be_moved_sideways(pages: Path, name: str) -> None:
    with opened(pages / f"{name}.html", PHONE) as (page, said):
        page.wait_for_function("() => document.querySelector('.main-svg').clientWidth <= 390")
        sideways = page.evaluate(SIDEWAYS)
        charts = page.evaluate(CHARTS)
        page.screenshot(path=pages / f"{name}-phone.png", full_page=True)
    assert said == [] and sideways == []
    assert all(300 < chart["width"] <= PHONE[0] for chart in charts), charts


def test_printed_charts_fit_on_the_paper_and_completions_are_unfolded(pages: Path) -> None:
    with opened(pages / "one.html", DESKTOP) as (page, said):
        page.evaluate(REMEMBER_WIDTHS)
        page.pdf(path=pages / "one.pdf", format="A4")
        printed, moving, closed = page.evaluate("[window.printed, window.moving, window.closed]")
    assert said == [] and moving == closed == 0
    assert len(printed) > 8 and max(printed) <= A4_WIDTH
    paper = (pages / "one.pdf").read_bytes()
    assert paper.startswith(b"%PDF") and len(paper) > 100_000
