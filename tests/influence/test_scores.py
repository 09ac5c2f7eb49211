"""Scores as a table: ranks, ties, zero gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.influence.scores import SCORE_SCHEMA, Products, scores_from_products


def test_cosines_ranks_and_rows_by_hand() -> None:
    scores = scores_from_products(
        Products(["b", "a", "c"], np.array([[3.0, 0.0], [0.0, 0.0], [-1.0, 0.5]]), np.array([2.0, 0.0, 1.0])),
        ["plus", "minus"],
        [3.0, 1.0],
    )
    np.testing.assert_allclose(scores.cosine, [[0.5, 0.0], [0.0, 0.0], [-1 / 3, 0.5]])
    # On minus, a and b tie at 0: a goes first by its id.
    assert scores.ranks().tolist() == [[1, 3], [2, 2], [3, 1]]
    table = scores.to_table()
    assert table.schema == SCORE_SCHEMA
    assert table.to_pylist() == [
        {
            "prompt_id": prompt_id,
            "validation_set": name,
            "dot": dot,
            "cosine": pytest.approx(cosine),
            "norm": norm,
            "rank": rank,
            "estimator": "exact",
        }
        for prompt_id, name, dot, cosine, norm, rank in [
            ("b", "plus", 3.0, 0.5, 2.0, 1),
            ("b", "minus", 0.0, 0.0, 2.0, 3),
            ("a", "plus", 0.0, 0.0, 0.0, 2),
            ("a", "minus", 0.0, 0.0, 0.0, 2),
            ("c", "plus", -1.0, -1 / 3, 1.0, 3),
            ("c", "minus", 0.5, 0.5, 1.0, 1),
        ]
    ]


def test_a_length_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt b: its gradient has length nan.*check the policy's weights"):
        scores_from_products(
            Products(["a", "b"], np.array([[1.0], [np.nan]]), np.array([1.0, np.nan])), ["plus"], [1.0]
        )
