"""Masks, projections and features: unbiased, reproducible, and right past 2**32 coordinates."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import policy_of, pool_of, validation_of

from pipeline_lib.config import ExactInfluence, ProjectedInfluence
from pipeline_lib.influence import exact_scores, projected_scores, score
from pipeline_lib.influence import projected as projected_module
from pipeline_lib.influence.features import Features, feature_schema, feature_table
from pipeline_lib.influence.objective import Gradient, group_gradient
from pipeline_lib.influence.projected import (
    projected_features,
    projection_of,
    scores_of_features,
    validation_features,
)
from pipeline_lib.influence.projection import BLOCK, Projection, kept_coordinates
from pipeline_lib.influence.validation import mean_gradient

CPU = torch.device("cpu")
QUERY = Path(__file__).parents[2] / "warehouse" / "queries" / "score_features.sql"


def ignore(_: int) -> None:
    pass


def projection(sizes: list[int], keep_ratio: float = 0.5, dimension: int = 8, seed: int = 0) -> Projection:
    return Projection(sizes, keep_ratio=keep_ratio, dimension=dimension, seed=seed, device=CPU)


def kept(start: int, stop: int, keep_ratio: float = 0.1, seed: int = 3) -> list[int]:
    return kept_coordinates(start, stop, keep_ratio=keep_ratio, seed=seed, device=CPU).tolist()


def kept_by_hand(start: int, stop: int, keep_ratio: float, seed: int) -> list[int]:
    """The same rule in Python's unbounded whole numbers."""

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    first = mix((seed + 1) * golden % 2**64)
    return [i for i in range(start, stop) if (mix((first + (i + 1) * golden) % 2**64) >> 11) < keep_ratio * 2**53]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 300), st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_the_mask_is_the_hash_of_the_index(start: int, count: int, keep_ratio: float, seed: int) -> None:
    assert kept(start, start + count, keep_ratio, seed) == kept_by_hand(start, start + count, keep_ratio, seed)


def test_the_mask_past_32_bits() -> None:
    start = 2**32 - 500
    mask = kept(start, start + 1000)
    assert mask == kept_by_hand(start, start + 1000, 0.1, 3)
    assert mask[-1] >= 2**32
    wrapped = kept(0, 500)
    assert [i - 2**32 for i in mask if i >= 2**32] != wrapped, "indices must not wrap around"


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_mask_does_not_depend_on_how_coordinates_are_grouped(a: int, b: int) -> None:
    assert kept(0, a) + kept(a, a + b) == kept(0, a + b)


def test_the_mask_keeps_its_share_and_heeds_the_seed() -> None:
    n = 200_000
    assert len(kept(0, n)) == pytest.approx(0.1 * n, abs=5 * math.sqrt(n * 0.1 * 0.9))
    assert len(kept(0, n, keep_ratio=1.0)) == n
    overlap = len(set(kept(0, n)) & set(kept(0, n, seed=4)))
    assert overlap == pytest.approx(0.01 * n, abs=5 * math.sqrt(n * 0.01))


def test_block_seeds_are_distinct() -> None:
    a, b = projection([9]), projection([9], seed=1)
    assert len({a.block_seed(block) for block in range(50_000)}) == 50_000
    assert a.block_seed(5) != b.block_seed(5)


def test_a_mask_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_ratio=1e-12 keeps none of 9 coordinates; raise"):
        projection([9], keep_ratio=1e-12)


def random_gradient(sizes: list[int], seed: int) -> Gradient:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in sizes]


def test_a_projection_does_not_depend_on_how_parameters_are_grouped() -> None:
    sizes = [3, BLOCK - 1, 0, BLOCK + 7, 1]
    gradient = random_gradient(sizes, 0)
    apart, together = projection(sizes), projection([sum(sizes)])
    np.testing.assert_array_equal(apart.mask(gradient), together.mask([torch.cat(gradient)]))
    features = [p.project(p.mask(g)[None]) for p, g in ((apart, gradient), (together, [torch.cat(gradient)]))]
    torch.testing.assert_close(features[0], features[1])
    assert apart.name == together.name


def test_a_projection_is_linear_and_does_not_depend_on_the_batch() -> None:
    sizes = [2 * BLOCK + 5]
    p = projection(sizes)
    a, b = (p.mask(random_gradient(sizes, seed)) for seed in (1, 2))
    batch = p.project(torch.stack([a, b, a + b]))
    torch.testing.assert_close(batch[0] + batch[1], batch[2], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(p.project(a[None])[0], batch[0], rtol=1e-4, atol=1e-3)


def test_a_projection_covers_every_block() -> None:
    """One coordinate at a time: each has a row of the Gaussian matrix, of unit variance, like no other."""
    p = projection([3 * BLOCK], keep_ratio=1.0, dimension=64)
    rows = []
    for index in (0, BLOCK - 1, BLOCK, 2 * BLOCK, 3 * BLOCK - 1):
        unit = torch.zeros(3 * BLOCK)
        unit[index] = 1.0
        rows.append(p.project(p.mask([unit])[None])[0])
    gram = torch.stack(rows) @ torch.stack(rows).T
    assert torch.diag(gram).numpy() == pytest.approx(1.0, abs=5 * math.sqrt(2 / 64))
    assert gram.fill_diagonal_(0.0).abs().max() < 5 / math.sqrt(64)


def test_inner_products_are_unbiased() -> None:
    """Over seeds, the mean of the projected inner product is the exact one within its standard error."""
    policy = policy_of("llama-tied")
    settings_ = {"temperature": 1.0, "tokens_per_micro_batch": 10_000}
    g = group_gradient(policy, pool_of(1)[0], **settings_)  # type: ignore[arg-type]
    v = mean_gradient(policy, validation_of(1)["plus"], **settings_)  # type: ignore[arg-type]
    sizes = [part.numel() for part in g]
    exact = sum(float((a * b).sum()) for a, b in zip(g, v, strict=True))
    estimates = []
    for seed in range(300):
        p = projection(sizes, keep_ratio=0.3, dimension=16, seed=seed)
        features = p.project(torch.stack([p.mask(g), p.mask(v)]))
        estimates.append(float(features[0] @ features[1]))
    standard_error = np.std(estimates, ddof=1) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - exact) < 4 * standard_error
    lengths = math.sqrt(sum(float(a.square().sum()) for a in g) * sum(float(b.square().sum()) for b in v))
    assert standard_error < 0.1 * lengths, "else the test shows nothing"


def test_scores_come_near_to_the_exact_ones() -> None:
    policy, groups, validation = policy_of("qwen2"), pool_of(2, n=10), validation_of(1)
    done: list[int] = []
    config = ProjectedInfluence(keep_ratio=1.0, dimension=2048)
    exact = exact_scores(policy, groups, validation, temperature=1.0, tokens_per_micro_batch=500, progress=ignore)
    found = projected_scores(
        policy, groups, validation, config, temperature=1.0, tokens_per_micro_batch=500, progress=done.append
    )
    assert sum(done) == sum(group.has_signal for group in groups)
    assert (found.prompt_ids, found.validation_sets) == (exact.prompt_ids, exact.validation_sets)
    np.testing.assert_allclose(found.cosine, exact.cosine, atol=5 / math.sqrt(2048))
    np.testing.assert_allclose(found.norm, exact.norm, rtol=5 / math.sqrt(2048))
    dull = [not group.has_signal for group in groups]
    assert (found.dot[dull] == 0).all() and (found.cosine[dull] == 0).all() and (found.norm[dull] == 0).all()


def test_scores_do_not_depend_on_batches_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, groups = policy_of("llama"), pool_of(3, n=7)
    p = projection_of(ProjectedInfluence(keep_ratio=0.2, dimension=32), policy)

    def features(pool: list, tokens: int) -> np.ndarray:  # type: ignore[type-arg]
        return projected_features(
            policy, pool, p, temperature=1.0, tokens_per_micro_batch=tokens, progress=ignore
        ).values_NK

    together = features(groups, 10_000)
    monkeypatch.setattr(projected_module, "BATCH_ENTRIES", 2 * p.n_kept)
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
    directions = validation_features(policy, validation_of(1), p, **settings_)  # type: ignore[arg-type]
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
    expected = scores_of_features(prompts, directions).to_table()
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


def test_the_config_names_the_estimator() -> None:
    policy, groups, validation = policy_of("llama"), pool_of(6), validation_of(1)
    settings_ = {"temperature": 1.0, "tokens_per_micro_batch": 500, "progress": ignore}
    exact = score(ExactInfluence(), policy, groups, validation, **settings_)  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        exact.dot,
        exact_scores(policy, groups, validation, **settings_).dot,  # type: ignore[arg-type]
    )
    config = ProjectedInfluence(keep_ratio=0.5, dimension=32, seed=9)
    projected = score(config, policy, groups, validation, **settings_)  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        projected.dot,
        projected_scores(policy, groups, validation, config, **settings_).dot,  # type: ignore[arg-type]
    )
    assert np.abs(exact.cosine - projected.cosine).max() > 1e-3
