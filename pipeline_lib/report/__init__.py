"""The HTML report of a run: one self-contained page."""

from pipeline_lib.report.data import SCHEMAS, ReportData
from pipeline_lib.report.html import render_report

__all__ = ["SCHEMAS", "ReportData", "render_report"]
