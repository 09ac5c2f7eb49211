"""What a report of two runs is made of: the tables of each, and those that compare them prompt by prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pipeline_lib.report.data import ReportData, cast

_INT: pa.DataType = pa.int64()
_FLOAT: pa.DataType = pa.float64()

PAIR_SCHEMAS: dict[str, pa.Schema] = {
    "differences": pa.schema(
        {
            "stage": _INT,
            "other_stage": _INT,
            "evaluation_set": pa.string(),
            "n_prompts": _INT,
            "difference": _FLOAT,  # of pass rates: the other run less the run
            "standard_error": _FLOAT,
            "n_better": _INT,
            "n_worse": _INT,
        }
    ),
    "overlap": pa.schema(
        {
            "stage": _INT,
            "n_pool": _INT,
            "n_other_pool": _INT,
            "n_both_pool": _INT,
            "n_selected": _INT,
            "n_other_selected": _INT,
            "n_both_selected": _INT,
        }
    ),
}
"""Table `x` is what `warehouse/queries/report_pair_x.sql` returns for `$run_id` and `$other`."""


@dataclass(frozen=True)
class PairData:
    """Of the run named first (`ours`) and of the other (`theirs`)."""

    ours: ReportData
    theirs: ReportData
    differences: pa.Table
    overlap: pa.Table

    @classmethod
    def from_tables(cls, ours: ReportData, theirs: ReportData, tables: Mapping[str, pa.Table]) -> PairData:
        return cls(ours, theirs, **{name: cast(tables[name], schema) for name, schema in PAIR_SCHEMAS.items()})

    @property
    def sides(self) -> tuple[ReportData, ReportData]:
        return self.ours, self.theirs

    @property
    def names(self) -> tuple[str, str]:
        ours, theirs = (side.run.to_pylist()[0]["run_id"] for side in self.sides)
        return ours, theirs
