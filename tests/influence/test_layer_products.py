"""Products of layers' gradients against the gradients themselves, formed and contracted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.influence import layer_products
from pipeline_lib.influence.layer_products import (
    Outer,
    Products,
    Rows,
    contracted_products,
    formed_products,
    forming_is_cheaper,
    row_products,
)

SIZE = st.integers(1, 9)


def by_hand(outer: Outer | None, rows: Rows | None, directions_VD: torch.Tensor, O: int, I: int) -> Products:
    """In float64, prompt after prompt."""
    P = len(outer.input_PTI) if outer is not None else len(rows.ids_PE)  # type: ignore[union-attr]
    gradients = torch.zeros(P, O, I, dtype=torch.float64)
    for p in range(P):
        if outer is not None:
            for delta, input_ in zip(outer.output_grad_PTO[p], outer.input_PTI[p], strict=True):
                gradients[p] += torch.outer(delta.double(), input_.double())
        if rows is not None:
            for index, grad in zip(rows.ids_PE[p].tolist(), rows.grad_PEI[p], strict=True):
                gradients[p, index] += grad.double()
    flat = gradients.flatten(1)
    return flat @ directions_VD.double().T, flat.square().sum(1)


def assert_equal(found: Products, expected: Products) -> None:
    """Terms are of size 1, and may cancel to what float32 cannot tell from 0."""
    lengths = expected[1].sqrt()
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-5, atol=1e-5)
    error = (found[0].double() - expected[0]).abs() / (lengths[:, None] + 0.1)
    assert error.max() < 1e-4


@settings(max_examples=40)
@given(P=SIZE, T=SIZE, O=SIZE, I=SIZE, V=st.integers(1, 3), E=SIZE, tied=st.booleans(), seed=st.integers(0, 2**31))
def test_formed_and_contracted_are_those_of_the_gradient(
    P: int, T: int, O: int, I: int, V: int, E: int, tied: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    outer = Outer(normal(P, T, O), normal(P, T, I))
    rows = Rows(torch.randint(O, (P, E), generator=generator), normal(P, E, I)) if tied else None
    directions_VD = normal(V, O * I)
    expected = by_hand(outer, rows, directions_VD, O, I)
    assert_equal(formed_products(outer, rows, directions_VD), expected)
    assert_equal(contracted_products(outer, rows, directions_VD), expected)
    if rows is not None:
        assert_equal(row_products(rows, directions_VD), by_hand(None, rows, directions_VD, O, I))


def test_prompts_may_be_formed_one_by_one_or_together(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    outer, directions_VD = Outer(torch.randn(5, 3, 4), torch.randn(5, 3, 6)), torch.randn(2, 24)
    together = formed_products(outer, None, directions_VD)
    for entries in (1, 48, 10**9):
        monkeypatch.setitem(layer_products.FORMED_ENTRIES, "cpu", entries)
        for found, expected in zip(formed_products(outer, None, directions_VD), together, strict=True):
            torch.testing.assert_close(found, expected)


def test_few_tokens_of_wide_layers_are_contracted() -> None:
    assert not forming_is_cheaper(T=8, O=4096, I=4096, V=2)
    assert forming_is_cheaper(T=2000, O=4096, I=4096, V=2)
    assert forming_is_cheaper(T=200, O=64, I=64, V=2)
    # With one direction contracting takes as many multiplications, and the Gram matrices beside.
    assert not forming_is_cheaper(T=200, O=4096, I=4096, V=1)
    assert forming_is_cheaper(T=1000, O=4096, I=4096, V=1)
