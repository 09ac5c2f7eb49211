"""How the two runs of a pair are told apart."""

from pipeline_lib.report.figure import PALETTE

SHADES = (PALETTE[0], PALETTE[1])
