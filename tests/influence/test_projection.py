"""Masks and projections of every kind: unbiased, reproducible, and right past 2**32 coordinates."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import policy_of, pool_of, validation_of
from projection_cases import CPU, KINDS, hash_by_hand, map_of, projection, random_gradient

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.objective import group_gradient
from pipeline_lib.influence.projection.base import kept_coordinates
from pipeline_lib.influence.projection.gaussian import BLOCK, GaussianProjection
from pipeline_lib.influence.projection.hadamard import hadamard, hadamard_transform
from pipeline_lib.influence.projection.orthogonal import OrthogonalProjection, distinct_rows
from pipeline_lib.influence.projection.sparse import SparseProjection
from pipeline_lib.influence.validation import mean_gradient

every_kind = pytest.mark.parametrize("kind", KINDS)


# --- the mask -------------------------------------------------------------------------------------------


def kept(start: int, stop: int, keep_ratio: float = 0.1, seed: int = 3) -> list[int]:
    return kept_coordinates(start, stop, keep_ratio=keep_ratio, seed=seed, device=CPU).tolist()


def kept_by_hand(start: int, stop: int, keep_ratio: float, seed: int) -> list[int]:
    return [i for i in range(start, stop) if (hash_by_hand(i, seed) >> 11) < keep_ratio * 2**53]


@settings(max_examples=25)
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


def test_a_mask_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_ratio=1e-12 keeps none of 9 coordinates; raise"):
        projection([9], keep_ratio=1e-12)


# --- every kind -----------------------------------------------------------------------------------------


@every_kind
@settings(max_examples=20)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) >= 8))
def test_a_projection_does_not_depend_on_how_parameters_are_grouped(kind: Any, sizes: list[int]) -> None:
    gradient = random_gradient(sizes, 0)
    apart, together = (projection(s, kind, keep_ratio=1.0) for s in (sizes, [sum(sizes)]))
    masked = apart.mask(gradient)
    assert torch.equal(masked, together.mask([torch.cat(gradient)]))
    assert torch.equal(apart.project(masked[None]), together.project(masked[None]))
    assert apart.name == together.name


@every_kind
def test_grouping_does_not_matter_across_blocks_either(kind: Any) -> None:
    sizes = [3, BLOCK - 1, 0, BLOCK + 7, 1]
    gradient = random_gradient(sizes, 0)
    apart, together = projection(sizes, kind), projection([sum(sizes)], kind)
    masked = apart.mask(gradient)
    assert torch.equal(masked, together.mask([torch.cat(gradient)]))
    assert torch.equal(apart.project(masked[None]), together.project(masked[None]))


@every_kind
def test_a_projection_is_linear_and_does_not_depend_on_the_batch(kind: Any) -> None:
    sizes = [2 * BLOCK + 5]
    p = projection(sizes, kind)
    a, b = (p.mask(random_gradient(sizes, seed)) for seed in (1, 2))
    batch = p.project(torch.stack([a, b, a + b]))
    torch.testing.assert_close(batch[0] + batch[1], batch[2], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(p.project(a[None])[0], batch[0], rtol=1e-4, atol=1e-3)


@every_kind
def test_one_seed_is_one_projection(kind: Any) -> None:
    masked = torch.randn(1, 300)
    first, again, other = (projection([300], kind, keep_ratio=1.0, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.project(masked), again.project(masked))
    assert not torch.allclose(first.project(masked), other.project(masked))


@every_kind
def test_inner_products_are_unbiased(kind: Any) -> None:
    """Over seeds, the mean of the projected inner product is the exact one within its standard error."""
    policy = policy_of("llama-tied")
    settings_ = {"temperature": 1.0, "tokens_per_micro_batch": 10_000}
    g = group_gradient(policy, pool_of(1)[0], **settings_)  # type: ignore[arg-type]
    v = mean_gradient(policy, validation_of(1)["plus"], list(policy.model.parameters()), **settings_)  # type: ignore[arg-type]
    sizes = [part.numel() for part in g]
    exact = sum(float((a * b).sum()) for a, b in zip(g, v, strict=True))
    estimates = []
    for seed in range(300):
        p = projection(sizes, kind, keep_ratio=0.3, dimension=16, seed=seed, nonzeros=3)
        features = p.project(torch.stack([p.mask(g), p.mask(v)]))
        estimates.append(float(features[0] @ features[1]))
    standard_error = np.std(estimates, ddof=1) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - exact) < 4 * standard_error
    lengths = math.sqrt(sum(float(a.square().sum()) for a in g) * sum(float(b.square().sum()) for b in v))
    assert standard_error < 0.1 * lengths, "else the test shows nothing"


@every_kind
def test_in_the_mean_over_seeds_the_map_is_an_isometry(kind: Any) -> None:
    """E[PᵀP] = I, entry by entry: kept coordinates 13 of 16, 7 dimensions in 3 blocks, so that nothing divides."""
    maps = torch.stack(
        [map_of(projection([13], kind, keep_ratio=1.0, dimension=7, seed=s, nonzeros=3)) for s in range(400)]
    )
    products = maps.mT @ maps
    standard_error = products.std(dim=0) / math.sqrt(len(maps))
    assert ((products.mean(dim=0) - torch.eye(13)).abs() <= 5 * standard_error + 1e-6).all()


def test_names_tell_kinds_and_nonzeros_apart() -> None:
    names = [projection([99], kind).name for kind in KINDS] + [projection([99], "sparse", nonzeros=4).name]
    assert names[0] == f"mask 0.5 then gaussian 8 of 99 coordinates, seed 0, torch {torch.__version__} on cpu"
    assert names[1:] == [
        "mask 0.5 then sparse 8 with 8 nonzeros of 99 coordinates, seed 0",
        "mask 0.5 then orthogonal 8 of 99 coordinates, seed 0",
        "mask 0.5 then sparse 8 with 4 nonzeros of 99 coordinates, seed 0",
    ]


# --- gaussian -------------------------------------------------------------------------------------------


def test_block_seeds_are_distinct() -> None:
    a, b = projection([9]), projection([9], seed=1)
    assert isinstance(a, GaussianProjection) and isinstance(b, GaussianProjection)
    assert len({a.block_seed(block) for block in range(50_000)}) == 50_000
    assert a.block_seed(5) != b.block_seed(5)


def test_the_gaussian_covers_every_block() -> None:
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


# --- sparse ---------------------------------------------------------------------------------------------


def sparse(sizes: list[int], **more: Any) -> SparseProjection:
    p = projection(sizes, "sparse", **more)
    assert isinstance(p, SparseProjection)
    return p


@settings(max_examples=30)
@given(st.integers(1, 40), st.data())
def test_a_coordinate_has_one_entry_in_each_block(dimension: int, data: st.DataObject) -> None:
    nonzeros = data.draw(st.integers(1, dimension))
    columns_KM = map_of(sparse([25], keep_ratio=1.0, dimension=dimension, nonzeros=nonzeros))
    edges = [block * dimension // nonzeros for block in range(nonzeros + 1)]
    assert max(np.diff(edges)) - min(np.diff(edges)) <= 1
    for first, stop in pairwise(edges):
        assert ((columns_KM[first:stop] != 0).sum(dim=0) == 1).all()
    torch.testing.assert_close(columns_KM[columns_KM != 0].abs(), torch.full((25 * nonzeros,), nonzeros**-0.5))


def test_places_and_signs_are_uniform_and_blocks_unlike() -> None:
    n, p = 40_000, sparse([1], keep_ratio=1.0, dimension=20, nonzeros=2)
    (place, sign), (second_place, second_sign) = (p.entries(torch.arange(n), block) for block in (0, 1))
    for bins in (place, second_place - 10, place * 2 + (sign > 0), (place + second_place) % 10):
        counts = torch.bincount(bins)
        share = n / len(counts)
        assert (counts - share).abs().max() < 5 * math.sqrt(share)
    assert abs(int((sign * second_sign).sum())) < 5 * math.sqrt(n)


@settings(max_examples=25)
@given(st.integers(2**32 - 50, 2**62), st.integers(0, 7), st.integers(8, 5000), st.integers(0, 2**31))
def test_sparse_entries_past_32_bits(start: int, block: int, dimension: int, seed: int) -> None:
    index = torch.arange(start, start + 100)
    place, sign = sparse([9], keep_ratio=1.0, dimension=dimension, seed=seed).entries(index, block)
    hashed = [hash_by_hand(int(i), hash_by_hand(-1 - block, seed)) for i in index]
    first, stop = block * dimension // 8, (block + 1) * dimension // 8
    assert place.tolist() == [first + (h >> 32) * (stop - first) // 2**32 for h in hashed]
    assert sign.tolist() == [1 - 2 * (h % 2) for h in hashed]


def test_a_coordinate_keeps_its_entries_whatever_the_mask_keeps_beside_it() -> None:
    few, all_ = (sparse([400], keep_ratio=keep_ratio) for keep_ratio in (0.3, 1.0))
    assert 0 < few.n_kept < 400
    assert torch.equal(map_of(few), map_of(all_)[:, few.coordinates_M])


def test_coordinates_past_32_bits_do_not_wrap_in_a_product() -> None:
    p, low = sparse([50], keep_ratio=1.0), sparse([50], keep_ratio=1.0)
    p.coordinates_M = p.coordinates_M + 2**32
    expected = torch.zeros(8, 50)
    for block in range(8):
        place, sign = p.entries(torch.arange(2**32, 2**32 + 50), block)
        expected[place, torch.arange(50)] += sign / math.sqrt(8)
    torch.testing.assert_close(map_of(p), expected)
    assert not torch.equal(map_of(p), map_of(low))


def test_more_nonzeros_than_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"nonzeros=9: .* of which there are 8; lower nonzeros or raise dimension"):
        ProjectedInfluence(kind="sparse", dimension=8, nonzeros=9)
    assert ProjectedInfluence(kind="gaussian", dimension=8, nonzeros=9).nonzeros == 9


# --- orthogonal -----------------------------------------------------------------------------------------


def hadamard_by_hand(order: int) -> np.ndarray:
    """(-1) to the number of ones that the binary row and column have in common."""
    return np.array([[(-1) ** (i & j).bit_count() for j in range(order)] for i in range(order)])


@pytest.mark.parametrize("bits", range(10))
def test_the_fast_transform_is_the_product_with_the_matrix(bits: int) -> None:
    H = hadamard_by_hand(2**bits)
    np.testing.assert_array_equal(hadamard(2**bits, CPU).numpy(), H)
    x = torch.randint(-100, 100, (2**bits,), generator=torch.Generator().manual_seed(bits)).float()
    np.testing.assert_array_equal(hadamard_transform(x).numpy(), H @ x.numpy())


@pytest.mark.parametrize("bits", [13, 18])
def test_the_transform_twice_is_the_order_times_the_vector(bits: int) -> None:
    x = torch.randn(2**bits, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard_transform(hadamard_transform(x)) / 2**bits, x, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(st.integers(0, 7), st.data())
def test_rows_are_orthogonal(bits: int, data: st.DataObject) -> None:
    order = 2**bits
    dimension = data.draw(st.integers(1, order))
    P = map_of(projection([order], "orthogonal", keep_ratio=1.0, dimension=dimension))
    torch.testing.assert_close(P @ P.T, order / dimension * torch.eye(dimension), rtol=1e-5, atol=1e-5)
    if dimension == order:
        torch.testing.assert_close(P.T @ P, torch.eye(order), rtol=1e-5, atol=1e-5)


def test_signs_spread_what_one_row_would_catch_alone() -> None:
    """Without them a constant vector lies in the first row, which is taken or not: its length is 0 or far too great."""
    p = projection([1024], "orthogonal", keep_ratio=1.0, dimension=128)
    length = float(p.project(torch.ones(1, 1024)).square().sum()) / 1024
    assert length == pytest.approx(1.0, abs=5 * math.sqrt(2 / 128))
    assert torch.diff(map_of(p)).count_nonzero() > 0.4 * 128 * 1023


def test_padding_keeps_an_isometry_where_every_row_is_taken() -> None:
    p = projection([21], "orthogonal", keep_ratio=1.0, dimension=32)
    assert isinstance(p, OrthogonalProjection) and p.order == 32
    torch.testing.assert_close(map_of(p).T @ map_of(p), torch.eye(21), rtol=1e-5, atol=1e-5)


@settings(max_examples=25)
@given(st.integers(0, 9), st.integers(0, 2**31), st.data())
def test_rows_are_sampled_without_replacement(bits: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 2**bits))
    rows = distinct_rows(2**bits, count, seed).tolist()
    assert len(rows) == len(set(rows)) == count and 0 <= min(rows) <= max(rows) < 2**bits


def test_every_row_is_as_likely() -> None:
    counts = np.bincount(np.concatenate([distinct_rows(16, 6, seed) for seed in range(2000)]), minlength=16)
    assert np.abs(counts - 750).max() < 5 * math.sqrt(2000 * 6 / 16 * 10 / 16)


def test_more_dimensions_than_padded_coordinates_are_refused() -> None:
    rule = r"dimension=33 exceeds 32, the 21 kept coordinates padded to a power of two.*lower influence.dimension"
    with pytest.raises(ValueError, match=rule):
        projection([21], "orthogonal", keep_ratio=1.0, dimension=33)
