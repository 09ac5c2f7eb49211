"""Inner products and lengths of many prompts' gradients of one parameter, from what its layers saw.

Suffixes: P prompts, T tokens of a prompt, O and I outputs and inputs of a layer, V directions, E embedded tokens.
Everything is summed in float32 or better; results are (dots [P, V], squared lengths [P]), float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

Products = tuple[torch.Tensor, torch.Tensor]

FORMED_ENTRIES = {"cpu": 1 << 18, "cuda": 1 << 28}
"""Gradient entries formed at once: what stays in a core's cache, or what keeps a GPU busy."""

PASS_PRICE = 25.0
"""What one pass over a gradient in memory costs, in tokens contracted with it. What it leads to is measured by
`benchmarks/influence.py contraction`."""


@dataclass(frozen=True)
class Outer:
    """The gradient Σ_t output_grad_t ⊗ input_t of a matrix [O, I]."""

    output_grad_PTO: torch.Tensor
    input_PTI: torch.Tensor


@dataclass(frozen=True)
class Rows:
    """The gradient of an embedding [O, I]: grad_e is added to the row ids_e."""

    ids_PE: torch.Tensor
    grad_PEI: torch.Tensor


def dense_products(gradient_PD: torch.Tensor, directions_VD: torch.Tensor) -> Products:
    return gradient_PD @ directions_VD.T, gradient_PD.square().sum(1)


def outer_products(outer: Outer, rows: Rows | None, directions_VD: torch.Tensor) -> Products:
    """Of a layer's matrix; with `rows` of an embedding that is tied to it."""
    T, O = outer.output_grad_PTO.shape[1:]
    if forming_is_cheaper(T, O, outer.input_PTI.shape[2], len(directions_VD)):
        return formed_products(outer, rows, directions_VD)
    return contracted_products(outer, rows, directions_VD)


def forming_is_cheaper(T: int, O: int, I: int, V: int) -> bool:
    """Whether to form a prompt's gradient and read it for each product, or to contract its tokens with each
    direction and take the length from the Gram matrices. In multiplications by O·I."""
    form = T + PASS_PRICE * (V + 1)
    contract = V * T + T * T * (1 / O + 1 / I)
    return form <= contract


def formed_products(outer: Outer, rows: Rows | None, directions_VD: torch.Tensor) -> Products:
    P, _, O = outer.output_grad_PTO.shape
    I = outer.input_PTI.shape[2]
    size = max(1, FORMED_ENTRIES[outer.input_PTI.device.type] // (O * I))
    dots, squares = [], []
    for start in range(0, P, size):
        chunk = slice(start, start + size)
        gradient_POI = _bmm(outer.output_grad_PTO[chunk].transpose(1, 2), outer.input_PTI[chunk])
        if rows is not None:
            n = len(gradient_POI)
            ids_PE = rows.ids_PE[chunk] + O * torch.arange(n, device=gradient_POI.device)[:, None]
            flat_grad = rows.grad_PEI[chunk].float().reshape(-1, I)
            gradient_POI.view(n * O, I).index_add_(0, ids_PE.reshape(-1), flat_grad)
        for gradient_D in gradient_POI.flatten(1):
            dots.append(directions_VD @ gradient_D)
            squares.append(gradient_D @ gradient_D)
    return torch.stack(dots), torch.stack(squares)


def contracted_products(outer: Outer, rows: Rows | None, directions_VD: torch.Tensor) -> Products:
    """<Σ_t δ_t ⊗ a_t, v> = Σ_t δ_t·(v a_t), and its squared length Σ_tt' (δ_t·δ_t')(a_t·a_t')."""
    output_grad_PTO, input_PTI = outer.output_grad_PTO.float(), outer.input_PTI.float()
    directions_VOI = directions_VD.view(-1, output_grad_PTO.shape[2], input_PTI.shape[2])
    dots_PV = torch.stack([((input_PTI @ v_OI.T) * output_grad_PTO).sum((1, 2)) for v_OI in directions_VOI], dim=1)
    squares_P = (_gram(output_grad_PTO) * _gram(input_PTI)).sum((1, 2))
    if rows is None:
        return dots_PV, squares_P
    row_dots_PV, row_squares_P = row_products(rows, directions_VD)
    # Σ_t Σ_e δ_t[id_e] (a_t·grad_e): what the matrix and the rows of one prompt have in common.
    at_ids_PTE = output_grad_PTO.gather(2, rows.ids_PE[:, None].expand(-1, output_grad_PTO.shape[1], -1))
    common_P = (at_ids_PTE * torch.bmm(input_PTI, rows.grad_PEI.float().transpose(1, 2))).sum((1, 2))
    return dots_PV + row_dots_PV, squares_P + row_squares_P + 2 * common_P


def row_products(rows: Rows, directions_VD: torch.Tensor) -> Products:
    """Of an embedding alone; a prompt's tokens with one id share a row."""
    P, E, I = rows.grad_PEI.shape
    grad_PEI = rows.grad_PEI.float()
    n_ids = directions_VD.shape[1] // I
    dots_PV = torch.stack([(v_OI[rows.ids_PE] * grad_PEI).sum((1, 2)) for v_OI in directions_VD.view(-1, n_ids, I)], 1)
    prompt_P1 = torch.arange(P, device=grad_PEI.device)[:, None]
    keys, row_of = torch.unique(prompt_P1 * n_ids + rows.ids_PE, return_inverse=True)
    summed = torch.zeros(len(keys), I, device=grad_PEI.device).index_add_(0, row_of.view(-1), grad_PEI.view(P * E, I))
    squares_P = torch.zeros(P, device=grad_PEI.device).index_add_(0, keys // n_ids, summed.square().sum(1))
    return dots_PV, squares_P


def _gram(x_PTD: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x_PTD, x_PTD.transpose(1, 2))


def _bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """float32 from operands of any precision, without rounding the sum to theirs."""
    if a.device.type == "cuda" and a.dtype == b.dtype != torch.float32:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())
