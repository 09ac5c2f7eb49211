"""The tables that a report is made of, and the columns each must have.

Field `x` is what `warehouse/queries/report_x.sql` returns for a run; `samples` and `completions` come from the rollout
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import pyarrow as pa

_TEXT: pa.DataType = pa.string()
_INT: pa.DataType = pa.int64()
_FLOAT: pa.DataType = pa.float64()
_BOOL: pa.DataType = pa.bool_()

SCHEMAS: dict[str, pa.Schema] = {
    "run": pa.schema(
        {
            "run_id": _TEXT,
            "status": _TEXT,
            "stages": _INT,
            "created_at": pa.timestamp("us"),
            "updated_at": pa.timestamp("us"),
            "policy": _TEXT,
            "policy_id": _TEXT,
            "n_parameters": _INT,
            "pool_size": _INT,
            "strategy": _TEXT,
            "alpha": _FLOAT,
            "sampler": _TEXT,
            "group_size": _INT,
            "max_kl": _FLOAT,
            "min_ess": _FLOAT,
            "config": _TEXT,  # JSON
        }
    ),
    "failures": pa.schema({"stage": _INT, "step": _TEXT, "error": _TEXT, "attempts": _INT}),
    "stages": pa.schema(
        {
            "stage": _INT,
            "prompts_selected": _INT,
            "steps": _INT,
            "rollouts": _INT,
            "rollouts_skipped": _INT,
            "prompts_scored": _INT,
            "prompts_without_gradient": _INT,
            "prompts_rolled_out": _INT,  # different ones, in training
            "prompts_with_signal": _INT,
            "prompts_effective": _FLOAT,
        }
    ),
    "evaluations": pa.schema(
        {
            "stage": _INT,
            "evaluation_set": _TEXT,
            "metric": _TEXT,
            "k": _INT,
            "value": _FLOAT,
            "standard_error": _FLOAT,
            "n_prompts": _INT,
        }
    ),
    "pass_rates": pa.schema({"stage": _INT, "pass_rate": _FLOAT, "n_prompts": _INT}),
    "paths": pa.schema({"stage": _INT, "outcome": _TEXT, "next_stage": _INT, "next_outcome": _TEXT, "n_prompts": _INT}),
    "information": pa.schema({"stage": _INT, "step": _INT, "information": _FLOAT, "rollouts": _INT}),
    "times": pa.schema({"stage": _INT, "step": _TEXT, "seconds": _FLOAT}),
    "costs": pa.schema({"stage": _INT, "rollouts": _INT, "tokens": _INT, "seconds": _FLOAT}),
    "train_steps": pa.schema(
        {
            "stage": _INT,
            "step": _INT,
            "solved_all": _INT,
            "solved_some": _INT,
            "solved_none": _INT,
            "reward": _FLOAT,
            "kl": _FLOAT,
            "entropy": _FLOAT,
            "grad_norm": _FLOAT,
            "rollouts": _INT,
            "rollouts_skipped": _INT,
            "prompts_proposed": _INT,
            "prompts_skipped": _INT,
            "prompts_rolled_out": _INT,
            "groups_trained": _INT,
            "groups_carried": _INT,
            "generation_rounds": _INT,
            "step_time": _FLOAT,
            "rollout_time": _FLOAT,
            "verify_time": _FLOAT,
            "logprob_time": _FLOAT,
            "update_time": _FLOAT,
        }
    ),
    "influence_histogram": pa.schema(
        {
            "stage": _INT,
            "validation_set": _TEXT,
            "cosine_low": _FLOAT,
            "cosine_high": _FLOAT,
            "n_prompts": _INT,
        }
    ),
    "influence_points": pa.schema(
        {
            "stage": _INT,
            "validation_set": _TEXT,
            "pass_rate": _FLOAT,
            "cosine": _FLOAT,
            "selected": _BOOL,
        }
    ),
    "selection_shares": pa.schema({"stage": _INT, "data_source": _TEXT, "kind": _TEXT, "n_prompts": _INT}),
    "ranked_prompts": pa.schema(
        {
            "stage": _INT,
            "rank": _INT,
            "selected": _BOOL,
            "prompt_id": _TEXT,
            "prompt": _TEXT,
            "data_source": _TEXT,
            "kind": _TEXT,
            "pass_rate": _FLOAT,
            "score": _FLOAT,
            "reason": _TEXT,
        }
    ),
    "diagnoses": pa.schema({"stage": _INT, "subject": _TEXT, "metric": _TEXT, "value": _FLOAT, "n": _INT}),
    "rejects": pa.schema({"split": _TEXT, "set_name": _TEXT, "reason": _TEXT, "n_rows": _INT, "example": _TEXT}),
    "samples": pa.schema(
        {
            "policy": _TEXT,  # in words, e.g. "after stage 2"
            "prompt": _TEXT,
            "gold": _TEXT,
            "completion": _TEXT,
            "reward": _FLOAT,
            "correct": _BOOL,
        }
    ),
    "completions": pa.schema(
        {
            "prompt_id": _TEXT,  # one of ranked_prompts
            "policy": _TEXT,
            "completion": _TEXT,
            "reward": _FLOAT,
            "correct": _BOOL,
        }
    ),
}
FROM_FILES = frozenset({"samples", "completions"})
"""The tables that no query makes."""


@dataclass(frozen=True)
class ReportData:
    run: pa.Table
    failures: pa.Table
    stages: pa.Table
    evaluations: pa.Table
    pass_rates: pa.Table
    paths: pa.Table
    information: pa.Table
    times: pa.Table
    costs: pa.Table
    train_steps: pa.Table
    influence_histogram: pa.Table
    influence_points: pa.Table
    selection_shares: pa.Table
    ranked_prompts: pa.Table
    diagnoses: pa.Table
    rejects: pa.Table
    samples: pa.Table
    completions: pa.Table

    @classmethod
    def from_tables(cls, tables: Mapping[str, pa.Table]) -> ReportData:
        """Cast each table to its schema; a table that is not given is empty."""
        return cls(
            **{
                field.name: cast(tables[field.name], SCHEMAS[field.name])
                if field.name in tables
                else SCHEMAS[field.name].empty_table()
                for field in fields(cls)
            }
        )


def cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the schema, in its types. Raises KeyError where one is missing."""
    return table.select(schema.names).cast(schema)
