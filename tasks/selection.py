"""Top α of the pool by the configured strategy; every prompt's place and reason are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.config import RandomSelection
from pipeline_lib.selection import Candidates, Likeness, select
from tasks.prompt_rows import set_members
from tasks.step import Done, Step, Work, Workshop, fingerprints

CANDIDATES = """
    WITH taken AS (
        SELECT
            unnest($fingerprints::VARCHAR[]) AS fingerprint,
            unnest(range(len($fingerprints))) AS age,
            list_contains($collected::VARCHAR[], fingerprint) AS collected
    ),
    known AS (
        SELECT
            prompt_id,
            arg_max(last_pass_rate, age) AS pass_rate,
            coalesce(arg_max(last_graded_n, age), 0) AS n,
            arg_max(last_mean_length, age) AS tokens,
            arg_max(last_outcome, age) FILTER (collected) AS outcome,
            {signal} AS has_signal,
            max(age) FILTER (last_pass_rate IS NOT NULL) = len($fingerprints) - 1 AS fresh
        FROM prompt_totals
        JOIN taken USING (fingerprint)
        GROUP BY prompt_id
    ),
    pool AS (
        SELECT DISTINCT prompt_id FROM prompt_sources WHERE fingerprint = $ingest AND split = 'train'
    ),
    by_set AS (
        SELECT {columns} FROM {table} WHERE fingerprint = $by_set GROUP BY prompt_id
    )
    SELECT * REPLACE (
        coalesce(n, 0) AS n,
        coalesce(outcome, 'ungraded') AS outcome,
        coalesce(has_signal, false) AS has_signal,
        coalesce(fresh, false) AS fresh
    )
    FROM pool LEFT JOIN known USING (prompt_id) LEFT JOIN by_set USING (prompt_id)
"""
"""$fingerprints are the steps that rolled the pool out, oldest first, $collected those of them that a score is from;
fresh is what the last of them graded.

Where a step graded nothing of a prompt, its rate is NULL, and arg_max passes it over.
"""
STATES = "SELECT prompt_id, n_tokens, state FROM prompt_states WHERE fingerprint = $1"
SIGNAL_COLLECTED = "arg_max(last_has_signal, age) FILTER (collected)"
SIGNAL_KNOWN = "arg_max(outcomes[-1] = 'M', age) FILTER (outcomes <> '')"
"""Of the rollouts that a score is from; of the very group that the pass rate is of."""
OF_SET = "any_value({value}) FILTER (validation_set = $sets[{j}]) AS set_{j}"


@dataclass(frozen=True)
class Select(Step):
    name: ClassVar[str] = "select"

    ingest: Done
    rollouts_train: tuple[Done, ...]
    """The offline rollouts, then those that took the place of stale ones, oldest first."""
    score: Done | None
    relevance: Done | None
    history: tuple[Done, ...]
    """Every earlier step that rolled the pool out, oldest first: the later ones know newer pass rates."""

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"selection": self.run.selection.model_dump(mode="json")}
        if isinstance(self.run.selection, RandomSelection):
            settings |= {"seed": self.run.seed, "stage": self.stage}
        return settings

    def inputs(self) -> dict[str, str]:
        inputs = {"ingest": self.ingest.fingerprint}
        if self.score is not None:
            inputs["ranks"] = self.score.outputs["ranks_id"]
        if self.relevance is not None:
            inputs["relevance"] = self.relevance.fingerprint
        inputs |= fingerprints("rollouts_train", self.rollouts_train)
        return inputs | fingerprints("history", self.history)

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, None, "")
        candidates = self._candidates(at)
        table = select(self.run.selection, candidates, seed=(self.run.seed, self.stage))
        n_selected = pc.sum(table["selected"]).as_py()
        return Work({"n_pool": len(candidates), "n_selected": n_selected}, {"selections": table})

    def _candidates(self, at: Workshop) -> Candidates:
        by_set = self.score or self.relevance
        table, value = ("influence_scores", "rank") if self.score is not None else ("relevances", "relevance")
        sets = sorted(set_members(at.warehouse, self.ingest, "validation")) if by_set is not None else []
        numbers = range(1, len(sets) + 1)
        columns = ", ".join(["prompt_id", *(OF_SET.format(value=value, j=j) for j in numbers)])
        pool = at.warehouse.query(
            CANDIDATES.format(
                columns=columns,
                table=table,
                signal=SIGNAL_COLLECTED if self.relevance is None else SIGNAL_KNOWN,
            ),
            {
                "ingest": self.ingest.fingerprint,
                "fingerprints": [done.fingerprint for done in self.history],
                "collected": [done.fingerprint for done in self.rollouts_train],
                "by_set": by_set.fingerprint if by_set is not None else None,
                **({"sets": sets} if sets else {}),
            },
        )
        values_NV = np.array([_complete(pool[f"set_{j}"]) for j in numbers]).reshape(len(sets), len(pool)).T
        return Candidates(
            prompt_ids=pool["prompt_id"].to_numpy(),
            pass_rate=pool["pass_rate"].to_numpy(),
            n=pool["n"].to_numpy(),
            tokens=pool["tokens"].to_numpy(),
            outcome=pool["outcome"].to_numpy(),
            has_signal=pool["has_signal"].to_numpy(),
            rank_NV=values_NV if self.score is not None else None,
            likeness=self._likeness(at, pool, values_NV) if self.relevance is not None else None,
            validation_sets=sets,
        )

    def _likeness(self, at: Workshop, pool: pa.Table, relevance_NV: np.ndarray) -> Likeness:
        assert self.relevance is not None
        states = at.warehouse.query(STATES, [self.relevance.fingerprint])
        rows = pc.index_in(pool["prompt_id"], states["prompt_id"].combine_chunks())
        states = states.take(rows)
        state_ND = pc.list_flatten(states["state"]).to_numpy().reshape(len(states), -1).astype(np.float64)
        return Likeness(relevance_NV, state_ND, states["n_tokens"].to_numpy(), pool["fresh"].to_numpy())


def _complete(column: pa.ChunkedArray) -> np.ndarray:
    assert column.null_count == 0, "the whole pool is compared with every set"
    return column.to_numpy()
