"""Rows that repeat, leave and join keep their keys and values, whatever room there was."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.rollout import row_cache
from pipeline_lib.rollout.row_cache import RowCache, rows_beside

H, D = 2, 3


def filled(rows: int, columns: int, first: float) -> RowCache:
    """Two layers, all of whose numbers differ."""
    cache = RowCache()
    numbers = torch.arange(rows * H * columns * D, dtype=torch.float32).reshape(rows, H, columns, D) + first
    for layer in range(2):
        cache.update(numbers + 1000 * layer, -numbers - 1000 * layer, layer)
    return cache


def states(cache: RowCache) -> list[torch.Tensor]:
    return [states for layer in cache.layers for states in (layer.keys.clone(), layer.values.clone())]


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(0, 9), st.integers(1, 5))
def test_columns_are_added_as_by_concatenation(rows: int, steps: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "ROOM", room)
        cache = filled(rows, 2, 0)
        expected = states(cache)
        for step in range(steps):
            added = [torch.randn(rows, H, 1, D) for _ in expected]
            seen = [cache.update(added[2 * layer], added[2 * layer + 1], layer) for layer in range(2)]
            expected = [torch.cat([old, new], 2) for old, new in zip(expected, added, strict=True)]
            assert all(map(torch.equal, [s for pair in seen for s in pair], expected))
            assert cache.get_seq_length() == 3 + step


@settings(max_examples=40)
@given(st.data())
def test_rows_beside_each_other_are_the_named_ones_aligned_at_their_ends(data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    width = data.draw(st.integers(1, 7))
    named = [data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=5)) for _ in widths]
    caches = [filled(3, columns, 10_000 * part + 1) for part, columns in enumerate(widths)]
    before = [states(cache) for cache in caches]
    whole = rows_beside([(c, torch.tensor(rows)) for c, rows in zip(caches, named, strict=True)], width)
    assert whole.get_seq_length() == width
    for number, found in enumerate(states(whole)):
        rows_found = iter(found)
        for part, rows in enumerate(named):
            for row in rows:
                expected = torch.zeros(H, width, D)
                columns = min(width, widths[part])
                expected[:, width - columns :] = before[part][number][row, :, widths[part] - columns :]
                assert torch.equal(next(rows_found), expected)


def test_rows_put_together_go_on_growing() -> None:
    whole = rows_beside([(filled(2, 3, 0), torch.tensor([1])), (filled(1, 4, 500), torch.tensor([0, 0]))], 4)
    before = states(whole)
    for layer in range(2):
        whole.update(torch.ones(3, H, 1, D), torch.ones(3, H, 1, D), layer)
    assert all(torch.equal(now[:, :, :4], then) for now, then in zip(states(whole), before, strict=True))
    assert all(bool((now[:, :, 4] == 1).all()) for now in states(whole))
