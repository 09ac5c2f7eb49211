"""Rank, selection and reason of every prompt, against the same in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import InfluenceSelection, LearnabilitySelection, PassRateSelection
from pipeline_lib.selection import Candidates, number_kept, select

OUTCOMES = ("all_right", "all_wrong", "mixed", "ungraded")
Row = tuple[str, int, int, str, tuple[int, int]]
"""prompt_id, graded completions, correct ones, outcome of the rollouts scored, ranks on two sets"""


@st.composite
def pools(draw: st.DrawFn) -> list[Row]:
    ids = draw(st.lists(st.text("aZé9", min_size=1, max_size=3), min_size=1, max_size=12, unique=True))
    ranks = [draw(st.permutations(range(1, len(ids) + 1))) for _ in range(2)]
    rows = []
    for i, prompt_id in enumerate(ids):
        n = draw(st.integers(0, 8))
        rows.append(
            (prompt_id, n, draw(st.integers(0, n)), draw(st.sampled_from(OUTCOMES)), (ranks[0][i], ranks[1][i]))
        )
    return rows


def candidates(rows: list[Row]) -> Candidates:
    return Candidates(
        prompt_ids=np.array([row[0] for row in rows], dtype=object),
        pass_rate=np.array([row[2] / row[1] if row[1] else np.nan for row in rows]),
        n=np.array([row[1] for row in rows]),
        tokens=np.full(len(rows), 10.0),
        outcome=np.array([row[3] for row in rows], dtype=object),
        has_signal=np.array([row[3] == "mixed" for row in rows]),
        rank_NV=np.array([row[4] for row in rows]),
        validation_sets=("left", "right"),
    )


def expected(config: InfluenceSelection | LearnabilitySelection | PassRateSelection, rows: list[Row]) -> list[tuple]:
    kept = number_kept(config.alpha, len(rows))
    scored = []
    for prompt_id, n, n_correct, outcome, ranks in rows:
        without = None
        if isinstance(config, InfluenceSelection):
            score = sum(sorted(1 / (config.rrf_k + r) for r in ranks if not config.truncate or r <= kept))
            why = f"best on {'left' if ranks[0] <= ranks[1] else 'right'} (rank {min(ranks)})"
            if outcome == "ungraded":
                without = "nothing graded offline (ungraded): no gradient"
            elif outcome != "mixed":
                without = f"zero-variance offline ({outcome}): no gradient"
        else:
            rate = n_correct / n if n else 0.0
            why = f"pass rate {rate:.3g} of {n}"
            score = rate * (1 - rate)
            if isinstance(config, PassRateSelection):
                why += f", target {config.target:g}"
                score = -abs(rate - config.target)
            if n == 0:
                score, without = -2.0, "pass rate unknown: ranked last"
        scored.append((-score, prompt_id, why, without))
    told = []
    for rank, (score, prompt_id, why, without) in enumerate(sorted(scored, key=lambda row: row[:2]), start=1):
        if rank <= kept:
            reason = f"rank {rank} of {len(rows)}, kept {kept}: {without or why}"
        else:
            reason = without or f"rank {rank} of {len(rows)}: below the {kept} kept"
        told.append((prompt_id, -score, rank, rank <= kept, reason))
    return told


@given(
    pools(),
    st.sampled_from(
        [
            InfluenceSelection(alpha=0.4),
            InfluenceSelection(alpha=0.3, rrf_k=60.0, truncate=True),
            LearnabilitySelection(alpha=0.5),
            PassRateSelection(alpha=0.25, target=0.7),
        ]
    ),
)
def test_every_prompt_has_the_place_and_the_words_of_plain_python(
    rows: list[Row], config: InfluenceSelection | LearnabilitySelection | PassRateSelection
) -> None:
    table = select(config, candidates(rows), 0)
    found = [tuple(row.values()) for row in table.drop_columns(["strategy", "pass_rate"]).to_pylist()]
    assert found == expected(config, rows)
