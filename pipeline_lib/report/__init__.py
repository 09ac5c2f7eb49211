"""The HTML reports: one self-contained page of a run, or of two side by side."""

from pipeline_lib.report.data import FROM_FILES, SCHEMAS, ReportData
from pipeline_lib.report.html import render_pair, render_report
from pipeline_lib.report.pair.data import PAIR_SCHEMAS, PairData

__all__ = ["FROM_FILES", "PAIR_SCHEMAS", "SCHEMAS", "PairData", "ReportData", "render_pair", "render_report"]
