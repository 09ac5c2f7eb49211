"""The page in a real browser: every chart drawn, no error on the console."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fabricated_run import empty_warehouse, fabricate, load_all, sample_completions

from pipeline_lib.report import ReportData, render_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--v=0",
    "--dump-dom",
]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_every_chart_is_drawn_and_the_console_stays_clean(tmp_path: Path) -> None:
    connection = empty_warehouse()
    fabricate(connection)
    page = render_report(ReportData.from_tables({**load_all(connection), "samples": sample_completions()}))
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    browser = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "report.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert browser.returncode == 0, browser.stderr
    console = [line for line in browser.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    charts = re.split(r'<div id="chart-\d+"', browser.stdout)[1:]
    assert len(charts) == len(re.findall(r'id="chart-\d+"', page))
    assert all('<svg class="main-svg"' in chart for chart in charts)
