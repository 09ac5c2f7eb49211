"""The geometry that gradients are compared in: as they are, or as an Adam-like optimizer scales them.

Adam divides each coordinate by the root of its second moment q, so that a step along g moves the policy along
g/√q: the inner product of two such steps is <g/√q, v>, the length of one √<g/√q, g>. Both are the plain ones of
gradients that were multiplied with q^(-1/4), which is what a Geometry does. Few coordinates have most of a gradient's
length (the head's above all), are alike for all prompts, and decide a plain cosine.

q of a matrix is kept as Adafactor keeps it, by rows and columns (arXiv 1804.04235): then a layer's inputs and output
gradients can be scaled in place of the gradient that they make. Suffixes: O rows, I columns, D entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from pipeline_lib.influence.objective import Gradient

Scale = tuple[torch.Tensor, ...]
"""Of a matrix (rows [O], columns [I]), whose outer product multiplies it; of anything else (entries [D],)."""

DAMPING = 1e-2
"""Least second moment of a row or a column, in means of its matrix: a row that no validation prompt has touched must
not outweigh all others."""


@dataclass(frozen=True)
class Geometry:
    """One Scale for each scored parameter, float32."""

    scales: list[Scale]

    def scaled(self, gradient: Gradient) -> Gradient:
        """The gradient in this geometry, in the parameters' shapes."""
        return [scaled(part, scale) for part, scale in zip(gradient, self.scales, strict=True)]

    def over(self, parameters: Sequence[nn.Parameter], wanted: Sequence[nn.Parameter]) -> Geometry:
        """The part for `wanted` of a geometry that is for `parameters`."""
        by_parameter = dict(zip(parameters, self.scales, strict=True))
        return Geometry([by_parameter[parameter] for parameter in wanted])


def scaled(gradient: torch.Tensor, scale: Scale) -> torch.Tensor:
    if len(scale) == 1:
        return gradient * scale[0].view_as(gradient)
    rows_O, columns_I = scale
    return gradient * rows_O[:, None] * columns_I


@dataclass
class SecondMoment:
    """Mean over gradients of their squares: of a matrix by rows and columns, of anything else by entry."""

    n: int = 0
    sums: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def add(self, gradient: Gradient) -> None:
        new = [_means(part.float().square()) for part in gradient]
        if self.n == 0:
            self.sums = new
        else:
            self.sums = [tuple(a + b for a, b in zip(*pair, strict=True)) for pair in zip(self.sums, new, strict=True)]
        self.n += 1

    def geometry(self) -> Geometry:
        """q^(-1/4), damped; 1 for a parameter that no gradient has moved."""
        return Geometry([_fourth_root_of_inverse(tuple(sum_ / self.n for sum_ in sums)) for sums in self.sums])


def _means(squares: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (squares.mean(1), squares.mean(0)) if squares.ndim == 2 else (squares.reshape(-1),)


def _fourth_root_of_inverse(moment: Scale) -> Scale:
    mean = moment[0].mean()
    if mean == 0:
        return tuple(torch.ones_like(part) for part in moment)
    relative = [(part / mean).clamp(min=DAMPING).pow(-0.25) for part in moment]
    return (relative[0] * mean.pow(-0.25), *relative[1:])
