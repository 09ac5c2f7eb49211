"""What the check says of a projection, against its matrix written out."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import policy_of, pool_of
from projection_cases import KINDS, matrix_of, projection, random_gradient

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence import projection_check
from pipeline_lib.influence.objective import group_gradient
from pipeline_lib.influence.projected import projection_of
from pipeline_lib.influence.projection_check import ProjectionCheck, check_projection, compare, gram, sample_groups

SIZES = [7, 0, 30, 11]
SETTINGS: dict[str, Any] = {"temperature": 1.0, "tokens_per_micro_batch": 500}


def flat_of(gradients: list[list[torch.Tensor]]) -> np.ndarray:
    return torch.stack([torch.cat(gradient) for gradient in gradients]).double().numpy()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(n=st.integers(2, 9), seed=st.integers(0, 1000), size=st.sampled_from([1e-9, 1.0, 1e6]))
def test_the_check_is_what_the_explicit_matrix_does(kind: Any, n: int, seed: int, size: float) -> None:
    p = projection(SIZES, kind, keep_ratio=0.6, dimension=12, seed=seed)
    gradients = [[size * (i + 1) * part for part in random_gradient(SIZES, seed + i)] for i in range(n)]
    X, P = flat_of(gradients), matrix_of(p, SIZES).double().numpy()
    found = compare(gradients, p)
    singular = np.linalg.svd(P @ np.linalg.qr(X.T)[0], compute_uv=False)
    lengths = np.linalg.norm(X, axis=1)
    error = np.abs((X @ P.T @ P @ X.T - X @ X.T) / np.outer(lengths, lengths))
    pairs = [error[i, j] for i in range(n) for j in range(i)]
    diagonal = np.diag(error)
    assert (found.n, found.rank) == (n, n)
    expected = [singular.min(), singular.max(), np.mean(pairs), np.max(pairs), diagonal.mean(), diagonal.max()]
    np.testing.assert_allclose(list(found.to_dict().values())[2:], expected, rtol=1e-3, atol=1e-4)


def test_a_projection_that_loses_nothing_has_no_error() -> None:
    found = compare(
        [random_gradient(SIZES, i) for i in range(5)], projection(SIZES, "orthogonal", keep_ratio=1.0, dimension=64)
    )
    assert found.singular_min == pytest.approx(1.0, abs=1e-5)
    assert found.singular_max == pytest.approx(1.0, abs=1e-5)
    assert found.inner_product_max < 1e-5 and found.squared_length_max < 1e-5


def test_dependent_gradients_span_less() -> None:
    """Of two gradients, their sum and a multiple; and the zeros of rounding count as none."""
    a, b = random_gradient(SIZES, 0), random_gradient(SIZES, 1)
    gradients = [a, b, [x + y for x, y in zip(a, b, strict=True)], [3e4 * x for x in a]]
    p = projection(SIZES, dimension=16)
    found, two = compare(gradients, p), compare([a, b], p)
    assert (found.n, found.rank, two.rank) == (4, 2, 2)
    assert found.singular_min == pytest.approx(two.singular_min, rel=1e-4)
    assert found.singular_max == pytest.approx(two.singular_max, rel=1e-4)


def test_more_gradients_than_dimensions_lose_a_direction() -> None:
    found = compare([random_gradient(SIZES, i) for i in range(6)], projection(SIZES, keep_ratio=1.0, dimension=4))
    assert found.rank == 6
    assert found.singular_min < 1e-3 < found.singular_max


def test_the_gram_matrix_is_that_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection_check, "_CHUNK", 4)
    gradients = [random_gradient(SIZES, i) for i in range(4)]
    X = flat_of(gradients)
    np.testing.assert_allclose(gram(gradients), X @ X.T, rtol=1e-14, atol=1e-13)


def test_the_whole_check_samples_groups_with_signal() -> None:
    policy, groups = policy_of("llama"), pool_of(7, n=10)
    p = projection_of(ProjectedInfluence(kind="sparse", keep_ratio=0.5, dimension=256), policy)
    found = check_projection(policy, groups, p, n=4, **SETTINGS)
    assert found is not None and found.n == found.rank == 4
    assert found == check_projection(policy, groups[::-1], p, n=4, **SETTINGS), "the order of the pool must not matter"
    first = [group for group in groups if group.has_signal][:4]
    assert found == compare([group_gradient(policy, group, **SETTINGS) for group in first], p)
    assert 0.5 < found.singular_min <= found.singular_max < 1.5
    assert ProjectionCheck(**json.loads(json.dumps(found.to_dict()))) == found


def test_the_sample_is_the_first_by_prompt_id() -> None:
    groups = pool_of(8, n=10)
    ids = [group.prompt_id for group in sample_groups(groups[::-1], 3)]
    assert ids == [group.prompt_id for group in groups if group.has_signal][:3]
    assert len(sample_groups(groups, 99)) == 6


def test_memory_bounds_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, groups = policy_of("llama"), pool_of(7, n=10)
    p = projection_of(ProjectedInfluence(keep_ratio=0.5, dimension=64), policy)
    one = 4 * (p.n_coordinates + p.n_kept)
    monkeypatch.setattr(projection_check, "MEMORY_BYTES", 4 * one - 1)
    found = check_projection(policy, groups, p, n=16, **SETTINGS)
    assert found is not None and found.n == 3
    monkeypatch.setattr(projection_check, "MEMORY_BYTES", 2 * one - 1)
    assert check_projection(policy, groups, p, n=16, **SETTINGS) is None


def test_nothing_is_said_of_fewer_than_two_gradients() -> None:
    policy, groups = policy_of("llama"), pool_of(7, n=10)
    p = projection_of(ProjectedInfluence(dimension=64), policy)
    assert check_projection(policy, groups, p, n=0, **SETTINGS) is None
    assert check_projection(policy, [group for group in groups if not group.has_signal], p, n=8, **SETTINGS) is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_errors_are_of_the_size_that_theory_gives(kind: Any) -> None:
    """Inner products are off by about 1/sqrt(K) where the mask keeps everything."""
    sizes = [4000]
    p = projection(sizes, kind, keep_ratio=1.0, dimension=400)
    found = compare([random_gradient(sizes, i) for i in range(10)], p)
    assert 0.3 / math.sqrt(400) < found.inner_product_mean < 1.5 / math.sqrt(400)
