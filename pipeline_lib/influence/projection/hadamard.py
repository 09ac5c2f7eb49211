"""The fast Walsh-Hadamard transform."""

from __future__ import annotations

import torch

RADIX_BITS = 6
"""A product with the matrix of order 64 does six of the transform's levels in one pass over memory."""


def hadamard_transform(x_P: torch.Tensor) -> torch.Tensor:
    """H x for Sylvester's H of order P, a power of two.

    As H of order RQ is H_R ⊗ H_Q, a pass transforms the highest digit of the index and makes it the lowest
    one; after all of them each digit is back in its place (the constant geometry of Pease, J. ACM 15(2), 1968).
    """
    bits = x_P.shape[0].bit_length() - 1
    assert x_P.shape == (1 << bits,)
    while bits:
        step = min(bits, RADIX_BITS)
        x_P = (x_P.view(1 << step, -1).T @ hadamard(1 << step, x_P.device)).reshape(-1)
        bits -= step
    return x_P


def hadamard(order: int, device: torch.device) -> torch.Tensor:
    """Sylvester's matrix: H_1 = [1], H_2n = [[H_n, H_n], [H_n, -H_n]]."""
    H = torch.ones(1, 1, device=device)
    while len(H) < order:
        H = torch.cat([torch.cat([H, H], dim=1), torch.cat([H, -H], dim=1)])
    return H
