"""Features: near to the exact scores for every kind of projection, and the same in SQL."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from influence_cases import policy_of, pool_of, validation_of
from projection_cases import KINDS

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.features import Features, feature_schema, feature_table
from pipeline_lib.influence.projected import (
    projected_features,
    projection_of,
    scores_of_features,
    validation_features,
)
from pipeline_lib.influence.projection import base

CPU = torch.device("cpu")
QUERY = Path(__file__).parents[2] / "warehouse" / "queries" / "score_features.sql"


def ignore(_: int) -> None:
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_scores_come_near_to_the_exact_ones(kind: Any) -> None:
    policy, groups, validation = policy_of("qwen2"), pool_of(2, n=10), validation_of(1)
    done: list[int] = []
    config = ProjectedInfluence(kind=kind, keep_ratio=1.0, dimension=2048)
    exact = exact_scores(policy, groups, validation, temperature=1.0, tokens_per_micro_batch=500, progress=ignore)
    p = projection_of(config, policy)
    prompts = projected_features(policy, groups, p, temperature=1.0, tokens_per_micro_batch=500, progress=done.append)
    directions = validation_features(
        policy, validation, p, temperature=1.0, tokens_per_micro_batch=500, progress=ignore
    )
    found = scores_of_features(prompts, directions)
    assert sum(done) == sum(group.has_signal for group in groups)
    assert (found.prompt_ids, found.validation_sets) == (exact.prompt_ids, exact.validation_sets)
    np.testing.assert_allclose(found.cosine, exact.cosine, atol=5 / math.sqrt(2048))
    np.testing.assert_allclose(found.norm, exact.norm, rtol=5 / math.sqrt(2048))
    dull = [not group.has_signal for group in groups]
    assert (found.dot[dull] == 0).all() and (found.cosine[dull] == 0).all() and (found.norm[dull] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_batches_of_prompts(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, groups = policy_of("llama"), pool_of(3, n=7)
    p = projection_of(ProjectedInfluence(kind=kind, keep_ratio=0.2, dimension=32), policy)

    def features(pool: list, tokens: int) -> np.ndarray:  # type: ignore[type-arg]
        return projected_features(
            policy, pool, p, temperature=1.0, tokens_per_micro_batch=tokens, progress=ignore
        ).values_NK

    together = features(groups, 10_000)
    monkeypatch.setattr(base, "BATCH_ENTRIES", 2 * p.n_kept)
    np.testing.assert_allclose(features(groups, 1), together, rtol=1e-3, atol=1e-5 * np.abs(together).max())
    np.testing.assert_allclose(
        features(groups[::-1], 10_000)[::-1], together, rtol=1e-3, atol=1e-5 * np.abs(together).max()
    )


def test_a_pool_without_any_signal_has_zero_features() -> None:
    policy = policy_of("llama")
    groups = [group for group in pool_of(4, n=10) if not group.has_signal]
    p = projection_of(ProjectedInfluence(dimension=16), policy)
    features = projected_features(policy, groups, p, temperature=1.0, tokens_per_micro_batch=100, progress=ignore)
    assert features.values_NK.shape == (4, 16)
    assert not features.values_NK.any()


def test_features_of_different_projections_are_not_compared() -> None:
    a = Features(("p",), np.ones((1, 4), dtype=np.float32), "seed 0")
    b = Features(("plus",), np.ones((1, 4), dtype=np.float32), "seed 1")
    with pytest.raises(ValueError, match=r"projection \(seed 0\).*\(seed 1\).*project both alike"):
        scores_of_features(a, b)


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0, 1e9])
def test_float16_features_neither_underflow_nor_overflow(size: float) -> None:
    values = np.random.default_rng(0).standard_normal((5, 256)).astype(np.float32) * np.float32(size)
    values[1] = 0.0
    values[2, 1:] = 0.0  # all in one entry
    table = feature_table(Features(tuple("abcde"), values, "p"), "prompt_id")
    assert table.schema == feature_schema("prompt_id", 256)
    stored = np.array(table["feature"].to_pylist(), dtype=np.float64)
    restored = stored * table["scale"].to_numpy()[:, None]
    assert np.isfinite(stored).all()
    assert restored[1].tolist() == [0.0] * 256
    error = np.linalg.norm(restored - values, axis=1)
    assert (error <= 2**-11 * np.linalg.norm(values.astype(np.float64), axis=1)).all()


def test_sql_scores_features_as_the_library_does(tmp_path: Path) -> None:
    """From two Parquet files alone, a validation set that came later included."""
    policy, groups = policy_of("llama-tied"), pool_of(5, n=8)
    p = projection_of(ProjectedInfluence(keep_ratio=0.5, dimension=64), policy)
    settings_ = {"temperature": 1.0, "tokens_per_micro_batch": 500}
    prompts = projected_features(policy, groups, p, **settings_, progress=ignore)  # type: ignore[arg-type]
    directions = validation_features(policy, validation_of(1), p, **settings_, progress=ignore)  # type: ignore[arg-type]
    other = Features(("other",), directions.values_NK[:1], "another projection")
    train, validation = tmp_path / "train", tmp_path / "validation"
    train.mkdir()
    validation.mkdir()
    pq.write_table(feature_table(prompts, "prompt_id"), train / "shard-00000.parquet")
    pq.write_table(feature_table(directions, "validation_set"), validation / "first.parquet")
    pq.write_table(feature_table(other, "validation_set"), validation / "other.parquet")
    with duckdb.connect() as connection:
        rows = connection.execute(
            QUERY.read_text(), {"train": f"{train}/*.parquet", "validation": f"{validation}/*.parquet"}
        ).to_arrow_table()
    expected = scores_of_features(prompts, directions).to_table("projected").drop_columns("estimator")
    assert rows.column_names == expected.column_names
    keys = [("validation_set", "ascending"), ("prompt_id", "ascending")]
    rows, expected = rows.sort_by(keys), expected.sort_by(keys)
    assert rows["prompt_id"].to_pylist() == expected["prompt_id"].to_pylist()
    assert rows["validation_set"].to_pylist() == expected["validation_set"].to_pylist()
    scale = np.abs(expected["dot"].to_numpy()).max()
    np.testing.assert_allclose(rows["dot"].to_numpy(), expected["dot"].to_numpy(), atol=2e-3 * scale)
    np.testing.assert_allclose(rows["cosine"].to_numpy(), expected["cosine"].to_numpy(), atol=2e-3)
    np.testing.assert_allclose(rows["norm"].to_numpy(), expected["norm"].to_numpy(), rtol=2e-3)
    assert rows["rank"].to_pylist() == expected["rank"].to_pylist()
