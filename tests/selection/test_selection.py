"""Selection strategies: a hand-worked fusion, reasons, ties, and what holds for every strategy."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import (
    AllSelection,
    InfluenceSelection,
    LearnabilitySelection,
    PassRateSelection,
    RandomSelection,
    RelevanceSelection,
    Selection,
)
from pipeline_lib.selection import SELECTION_SCHEMA, STRATEGIES, Candidates, Likeness, number_kept, select
from pipeline_lib.selection.influence import reciprocal_rank_fusion
from pipeline_lib.selection.ranks import ranks_by_set
from pipeline_lib.selection.relevance import expected_gain, foreseen


def likeness(prompt_ids: list[str], relevance_NV: np.ndarray) -> Likeness:
    """All of one length, and none more like another: prompts tell each other their mean."""
    N = len(prompt_ids)
    return Likeness(relevance_NV, np.zeros((N, 2)), np.full(N, 10), np.ones(N, bool))


def candidates(
    prompt_ids: list[str],
    pass_rate: list[float] | None = None,
    cosine: list[list[float]] | None = None,
    sets: tuple[str, ...] = (),
    relevance: list[list[float]] | None = None,
    tokens: list[float] | None = None,
) -> Candidates:
    rate = np.array(pass_rate if pass_rate is not None else [0.5] * len(prompt_ids))
    return Candidates(
        prompt_ids=np.array(prompt_ids, dtype=object),
        pass_rate=rate,
        n=np.where(np.isnan(rate), 0, 8),
        tokens=np.array(tokens if tokens is not None else [20.0] * len(prompt_ids)),
        outcome=np.select([np.isnan(rate), rate == 0, rate == 1], ["ungraded", "all_wrong", "all_right"], "mixed"),
        has_signal=(rate > 0) & (rate < 1),
        rank_NV=None if cosine is None else ranks_by_set(np.array(cosine), np.array(prompt_ids)),
        likeness=None if relevance is None else likeness(prompt_ids, np.array(relevance)),
        validation_sets=sets,
    )


def test_fusion_by_hand() -> None:
    pool = candidates(
        ["a", "b", "c", "d"],
        [0.5, 0.0, 0.5, 0.5],
        [[0.9, -0.2], [0.0, 0.0], [0.3, 0.4], [-0.5, 0.1]],
        ("plus", "minus"),
    )
    # plus: a 1, c 2, b 3, d 4; minus: c 1, d 2, b 3, a 4
    # a 1 + 1/4, b 1/3 + 1/3, c 1/2 + 1, d 1/4 + 1/2
    table = select(InfluenceSelection(alpha=0.5), pool, 0)
    assert table.schema == SELECTION_SCHEMA
    assert table.to_pylist() == [
        {
            "prompt_id": prompt_id,
            "strategy": "influence",
            "score": pytest.approx(score),
            "rank": rank,
            "selected": rank <= 2,
            "pass_rate": 0.0 if prompt_id == "b" else 0.5,
            "reason": reason,
        }
        for rank, (prompt_id, score, reason) in enumerate(
            [
                ("c", 1.5, "rank 1 of 4, kept 2: best on minus (rank 1)"),
                ("a", 1.25, "rank 2 of 4, kept 2: best on plus (rank 1)"),
                ("d", 0.75, "rank 3 of 4: below the 2 kept"),
                ("b", 2 / 3, "zero-variance offline (all_wrong): no gradient"),
            ],
            start=1,
        )
    ]


def test_the_constant_of_fusion_flattens_the_head() -> None:
    ranks_NV = np.array([[1, 9], [4, 4]])
    assert reciprocal_rank_fusion(ranks_NV, 0.0) == pytest.approx([1 + 1 / 9, 1 / 2])
    assert reciprocal_rank_fusion(ranks_NV, 60.0) == pytest.approx([1 / 61 + 1 / 69, 2 / 64])


def test_truncated_fusion_by_hand() -> None:
    pool = candidates(
        ["a", "b", "c", "d", "e"],
        cosine=[[0.9, -0.5], [0.8, -0.4], [0.7, 0.3], [0.1, 0.8], [0.2, 0.1]],
        sets=("plus", "minus"),
    )
    # plus: a 1, b 2, c 3, e 4, d 5; minus: d 1, c 2, e 3, b 4, a 5. Two are kept, so ranks 3 to 5 add nothing.
    whole = select(InfluenceSelection(alpha=0.4), pool, 0)
    assert whole["prompt_id"].to_pylist() == ["a", "d", "c", "b", "e"]
    assert whole["score"].to_pylist() == pytest.approx([1 + 1 / 5, 1 + 1 / 5, 1 / 3 + 1 / 2, 1 / 2 + 1 / 4, 7 / 12])
    truncated = select(InfluenceSelection(alpha=0.4, truncate=True), pool, 0)
    assert truncated["prompt_id"].to_pylist() == ["a", "d", "b", "c", "e"]
    assert truncated["score"].to_pylist() == [1.0, 1.0, 0.5, 0.5, 0.0]
    assert truncated["selected"].to_pylist() == [True, True, False, False, False]


@given(st.integers(1, 30), st.integers(1, 4), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
def test_truncated_fusion_never_keeps_a_prompt_that_no_set_ranks_high_enough(
    pool: int, sets: int, alpha: float, seed: int
) -> None:
    cosine = np.random.default_rng(seed).standard_normal((pool, sets))
    ids = [f"{i:03d}" for i in range(pool)]
    named = tuple(f"v{j}" for j in range(sets))
    table = select(
        InfluenceSelection(alpha=alpha, truncate=True), candidates(ids, cosine=cosine.tolist(), sets=named), 0
    )
    assert all(row["score"] > 0 for row in table.to_pylist() if row["selected"])
    assert sum(score > 0 for score in table["score"].to_pylist()) <= sets * number_kept(alpha, pool)


def test_without_signal_ranks_between_help_and_harm() -> None:
    pool = candidates(["a", "b", "c"], [0.5, 1.0, 0.5], [[-0.1], [0.0], [0.1]], ("plus",))
    table = select(InfluenceSelection(alpha=0.67), pool, 0)
    assert table["prompt_id"].to_pylist() == ["c", "b", "a"]
    assert table["reason"][1].as_py() == ("rank 2 of 3, kept 2: zero-variance offline (all_right): no gradient")


def test_the_same_ranks_on_different_sets_tie_exactly() -> None:
    ranks_NV = np.array([[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 2, 1]])
    assert len(set(reciprocal_rank_fusion(ranks_NV, 0.0).tolist())) == 1


def test_influence_without_scores_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"needs influence scores.*run the score step first"):
        select(InfluenceSelection(), candidates(["a"]), 0)
    with pytest.raises(ValueError, match=r"carry no relevance.*run the relevance step first"):
        select(RelevanceSelection(), candidates(["a"]), 0)


def test_learnability_and_pass_rate_by_hand() -> None:
    pool = candidates(["a", "b", "c", "d"], [0.9, float("nan"), 0.25, 0.0])
    learnable = select(LearnabilitySelection(alpha=0.5), pool, 0)
    assert learnable["prompt_id"].to_pylist() == ["c", "a", "d", "b"]
    assert learnable["score"].to_pylist() == pytest.approx([0.1875, 0.09, 0.0, -2.0])
    assert learnable["reason"].to_pylist() == [
        "rank 1 of 4, kept 2: pass rate 0.25 of 8",
        "rank 2 of 4, kept 2: pass rate 0.9 of 8",
        "rank 3 of 4: below the 2 kept",
        "pass rate unknown: ranked last",
    ]
    nearest = select(PassRateSelection(alpha=0.25, target=0.8), pool, 0)
    assert nearest["prompt_id"].to_pylist() == ["a", "c", "d", "b"]
    assert nearest["score"].to_pylist() == pytest.approx([-0.1, -0.55, -0.8, -2.0])
    assert nearest["reason"][0].as_py() == "rank 1 of 4, kept 1: pass rate 0.9 of 8, target 0.8"


def test_relevance_by_hand() -> None:
    pool = candidates(
        ["a", "b", "c", "d", "e"],
        [0.25, 0.25, 0.875, 0.0, 0.25],
        sets=("plus", "minus"),
        relevance=[[1.0, 0.1], [0.5, 0.2], [1.0, 1.0], [1.0, 1.0], [0.0, 0.9]],
    )
    # Shown at h = 2 and n = 8: .4619 at 2 of 8 (p = 2.5 / 9), .1403 at 7 of 8 (p = 7.5 / 9), nothing without signal.
    # Their mean is .3052, worth 4 completions: .4097, .1953 and, without signal, .1017.
    # plus: a .410, b .205, c .195, d .102, e 0; minus: e .369, c .195, d .102, b .082, a .041.
    table = select(RelevanceSelection(alpha=0.4, horizon=2.0), pool, 0)
    assert table["prompt_id"].to_pylist() == ["a", "e", "c", "b", "d"]
    assert table["score"].to_pylist() == pytest.approx(
        [1 + 1 / 5, 1 + 1 / 5, 1 / 3 + 1 / 2, 1 / 2 + 1 / 4, 1 / 4 + 1 / 3]
    )
    assert table["reason"].to_pylist() == [
        "rank 1 of 5, kept 2: best on plus (rank 1), expected gain 0.410, pass rate 0.25 of 8",
        "rank 2 of 5, kept 2: best on minus (rank 1), expected gain 0.410, pass rate 0.25 of 8",
        *(f"rank {rank} of 5: below the 2 kept" for rank in (3, 4, 5)),
    ]


def test_what_was_not_rolled_out_is_told_from_prompts_like_it() -> None:
    """Two kinds: of one 2 of 8 are right, in 10 tokens, of the other nothing teaches, in 40. Two prompts are new, one
    of each; the last two are known from an older policy, which says half as much as prompts of their kind."""
    N = 14
    kind = np.arange(N) % 2
    new = np.arange(N) >= 10
    rate = np.where(kind == 0, 0.25, 1.0)
    rate[10:12] = np.nan
    rate[12:] = [1.0, 0.25]  # the other way round, of long ago
    pool = replace(
        candidates(
            [f"{i:02d}" for i in range(N)], rate.tolist(), tokens=np.where(new, np.nan, 10 + 30 * kind).tolist()
        ),
        likeness=Likeness(np.ones((N, 1)), np.stack([kind, np.zeros(N)], axis=1) * 5.0, np.full(N, 10), ~new),
        validation_sets=("v",),
    )
    assert pool.likeness is not None
    gain_N, tokens_N = foreseen(pool, pool.likeness, 2.0)
    by_hand = 1 / (1 + (6.5 / 2.5) * np.exp(-2)) - 2.5 / 9
    expected_N = np.where(kind == 0, by_hand, 0.0)
    expected_N[12:] = (
        by_hand / 2
    )  # 8 completions count as 4, beside 4 of like prompts: of one nothing, of the other all
    np.testing.assert_allclose(gain_N, expected_N, atol=1e-4)
    np.testing.assert_allclose(tokens_N, 10 + 30 * kind, rtol=1e-3)
    reasons = {row["prompt_id"]: row["reason"] for row in select(RelevanceSelection(alpha=1.0), pool, 0).to_pylist()}
    assert "best on v" in reasons["10"] and reasons["10"].endswith(", not rolled out yet")
    assert reasons["12"].endswith(", pass rate 1 of 8")


def test_a_prompt_like_no_validation_set_says_so() -> None:
    pool = candidates(["a", "b"], sets=("v", "w"), relevance=[[0.0, 0.0], [0.1, 0.0]])
    table = select(RelevanceSelection(alpha=0.5), pool, 0)
    assert table["prompt_id"].to_pylist() == ["b", "a"]
    assert table["reason"][1].as_py() == "like no validation set"


def test_relevance_counts_gain_for_each_token_or_for_each_completion() -> None:
    pool = candidates(
        ["long", "short", "empty"],
        [0.25, 0.25, 0.25],
        sets=("v",),
        relevance=[[1.0], [0.5], [0.01]],
        tokens=[30, 10, 0],
    )
    per_token = select(RelevanceSelection(alpha=0.34), pool, 0)
    assert per_token["prompt_id"].to_pylist() == ["short", "long", "empty"], "gains of 1/30, 1/20, 1/100"
    per_completion = select(RelevanceSelection(alpha=0.34, per_token=False), pool, 0)
    assert per_completion["prompt_id"].to_pylist() == ["long", "short", "empty"]


def test_the_gain_of_a_short_stage_is_learnability_and_that_of_a_long_one_what_is_left_to_learn() -> None:
    n = np.full(7, 10**6)
    p = np.arange(1, 8) / 8
    np.testing.assert_allclose(expected_gain(p, n, 1e-4) / 1e-4, p * (1 - p), rtol=1e-3)
    np.testing.assert_allclose(expected_gain(p, n, 30.0), 1 - p, rtol=1e-3)
    # σ(logit p + h) - p is largest where both ends lie alike about one half: logit p = -h/2.
    fine = np.arange(1, 1000) / 1000
    best = fine[expected_gain(fine, np.full(999, 10**9), 2.0).argmax()]
    assert best == pytest.approx(1 / (1 + np.exp(1)), abs=1e-3)
    by_hand = 1 / (1 + (6.5 / 2.5) * np.exp(-2)) - 2.5 / 9
    assert expected_gain(np.array([0.25, np.nan]), np.array([8, 0]), 2.0) == pytest.approx([by_hand, 0.0])


def test_all_keeps_the_whole_pool() -> None:
    table = select(AllSelection(), candidates(["b", "a"]), 0)
    assert table["prompt_id"].to_pylist() == ["a", "b"]
    assert table["selected"].to_pylist() == [True, True]


def test_random_is_drawn_anew_in_each_stage_and_the_same_again_for_one_seed() -> None:
    pool = candidates([f"{i:04d}" for i in range(200)])
    config = RandomSelection(alpha=0.25)
    first, second = select(config, pool, (7, 1)), select(config, pool, (7, 2))
    assert first.equals(select(config, pool, (7, 1)))
    assert first["prompt_id"].to_pylist() != second["prompt_id"].to_pylist()


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="0 prompts to select from"):
        select(AllSelection(), candidates([]), 0)


@pytest.mark.parametrize(
    ("alpha", "pool", "kept"), [(0.1, 500, 50), (0.1, 3, 1), (0.29, 100, 29), (1.0, 7, 7), (0.25, 6, 2)]
)
def test_number_kept(alpha: float, pool: int, kept: int) -> None:
    assert number_kept(alpha, pool) == kept


def config_of(strategy: str, alpha: float) -> Selection:
    return {
        "influence": InfluenceSelection(alpha=alpha),
        "relevance": RelevanceSelection(alpha=alpha),
        "learnability": LearnabilitySelection(alpha=alpha),
        "pass_rate": PassRateSelection(alpha=alpha, target=0.3),
        "random": RandomSelection(alpha=alpha),
        "all": AllSelection(),
    }[strategy]


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 40), st.floats(0.01, 1.0), st.randoms())
def test_every_strategy_keeps_exactly_n_whatever_the_order_of_the_pool(
    strategy: str, pool: int, alpha: float, random: object
) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    rates = rng.choice([0.0, 0.25, 0.5, 1.0, np.nan], size=pool)
    cosine = rng.choice([-0.5, 0.0, 0.5], size=(pool, 3)) * ((rates > 0) & (rates < 1))[:, None]
    relevance = rng.choice([0.0, 0.5, 1.0], size=(pool, 3))
    ids = [f"{i:03d}" for i in range(pool)]
    shuffle = rng.permutation(pool)
    tables = [
        select(
            config_of(strategy, alpha),
            candidates(
                [ids[i] for i in order],
                rates[order].tolist(),
                cosine[order].tolist(),
                ("u", "v", "w"),
                relevance[order].tolist(),
            ),
            (3, 1),
        )
        for order in (np.arange(pool), shuffle)
    ]
    assert tables[0].equals(tables[1])
    rows = tables[0].to_pylist()
    assert sum(row["selected"] for row in rows) == number_kept(config_of(strategy, alpha).alpha, pool)
    assert [row["rank"] for row in rows] == list(range(1, pool + 1))
    keys = [(-row["score"], row["prompt_id"]) for row in rows]
    assert keys == sorted(keys)
    assert all(row["reason"] for row in rows)


def test_fusion_of_a_large_pool_is_vectorised() -> None:
    N = 200_000
    values_NV = np.random.default_rng(0).standard_normal((N, 5))
    ids = np.array([f"{i:016x}" for i in range(N)])
    started = time.process_time()
    ranks_NV = ranks_by_set(values_NV, ids)
    score = reciprocal_rank_fusion(ranks_NV, 0.0)
    assert time.process_time() - started < 10
    assert score.shape == (N,)
    assert (np.sort(ranks_NV, axis=0) == np.arange(1, N + 1)[:, None]).all()
