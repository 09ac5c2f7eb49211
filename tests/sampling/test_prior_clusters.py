"""Shared priors of clusters: the shrunk rate by hand, and what k-means makes of texts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `difficulty`)")

from prior_cases import answered, log_loss, rates_of, sums

from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.clusters import ClusterRates, cluster_rates, cluster_texts
from pipeline_lib.sampling.priors.rows import Row, Text
from pipeline_lib.sampling.priors.vectors import hashed_ngrams


def test_the_rate_of_a_cluster_by_hand() -> None:
    cluster_N = np.array([0, 0, 1, 1])
    n_N, n_correct_N = np.array([8.0, 8.0, 8.0, 0.0]), np.array([8.0, 4.0, 0.0, 0.0])
    rates_N = cluster_rates(cluster_N, n_N, n_correct_N, shrinkage=4.0)
    # The first: the rest of all has 4 of 16, so m = 5/18; the rest of its cluster 4 of 8.
    assert rates_N[0] == pytest.approx((4 + 4 * 5 / 18) / (8 + 4))
    # The third is alone with one that has no completions: the mean of the others, 13/18.
    assert rates_N[2] == pytest.approx(13 / 18)
    # The last has none of its own to leave out: m = 13/26, its cluster 0 of 8.
    assert rates_N[3] == pytest.approx((0 + 4 * 13 / 26) / (8 + 4))


def test_more_completions_draw_a_cluster_away_from_the_mean() -> None:
    def rate(prompts: int) -> float:
        cluster_N = np.array([0] * prompts + [1] * prompts + [0])
        n_N = np.array([8.0] * 2 * prompts + [0.0])
        n_correct_N = np.array([8.0] * prompts + [0.0] * (prompts + 1))
        return float(cluster_rates(cluster_N, n_N, n_correct_N, shrinkage=16.0)[-1])

    assert 0.5 < rate(1) < rate(4) < rate(16) < 1
    assert rate(1) == pytest.approx((8 + 16 * 0.5) / 24)


def test_members_share_a_distribution_and_not_an_outcome() -> None:
    texts = [Text(str(i), "s", "") for i in range(40)]
    clusters = {text.prompt_id: i % 2 for i, text in enumerate(texts)}
    # Cluster 0 is always right, cluster 1 never; the last ten have no history.
    rows = [Row(text, 8, 8 * (1 - i % 2)) for i, text in enumerate(texts[:30])]
    own = ClusterRates(rows, clusters, shrinkage=8.0, max_concentration=16.0)
    right, wrong = own.betas(texts[30:32])
    assert right == own.betas(texts[32:33])[0]
    assert 0.9 < right.a / sum(right) < 1 and 0 < wrong.a / sum(wrong) < 0.1
    assert sum(right) == pytest.approx(16.0)


def test_a_prompts_own_outcome_is_not_in_its_prior() -> None:
    texts = [Text(str(i), "s", "") for i in range(20)]
    clusters = {text.prompt_id: i % 3 for i, text in enumerate(texts)}
    rows = [Row(text, 8, i % 9) for i, text in enumerate(texts)]
    turned = [*rows[:5], Row(texts[5], 8, 0), *rows[6:]]
    before, after = (ClusterRates(r, clusters, shrinkage=8.0, max_concentration=16.0) for r in (rows, turned))
    assert before.means(texts)[5] == after.means(texts)[5]
    assert not np.array_equal(before.means(texts), after.means(texts))


def test_without_outcomes_everything_is_possible() -> None:
    own = ClusterRates([], {"a": 0}, shrinkage=8.0, max_concentration=16.0)
    assert own.betas([Text("a", "s", "x")]) == [Beta(1, 1)]
    assert own.betas([]) == []


def test_clusters_of_texts_tell_prompts_apart() -> None:
    texts = sums(400, seed=1)
    vectorise = hashed_ngrams([text.text for text in texts])
    clusters = cluster_texts(texts, vectorise, 8, seed=0)
    assert clusters == cluster_texts(texts, vectorise, 8, seed=0)
    assert all(len({t.text[1] for t in texts if clusters[t.prompt_id] == c}) == 1 for c in set(clusters.values()))
    rates = rates_of(texts)
    own = ClusterRates(answered(texts[:200], rates[:200], 8, seed=0), clusters, shrinkage=16.0, max_concentration=64.0)
    mean = np.full(200, rates.mean())
    assert log_loss(own.means(texts[200:]), rates[200:]) < log_loss(mean, rates[200:]) - 0.1


def test_there_are_no_more_clusters_than_texts_that_differ() -> None:
    texts = [Text("a", "s", "1+1"), Text("b", "s", "2+3"), Text("c", "s", "what?")]
    clusters = cluster_texts(texts, hashed_ngrams([t.text for t in texts]), 32, seed=0)
    assert clusters["a"] == clusters["b"] != clusters["c"]
