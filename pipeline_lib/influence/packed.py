"""Dot products and norms of many prompts' gradients from one forward and one backward pass.

Hooks keep each layer's input until the gradient of its output arrives. Then the gradient of each prompt is
formed for that one parameter, dotted with every direction, its squared norm added, and dropped.
Suffixes: P prompts of the micro-batch, V directions, D entries of a parameter, B trajectories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

from pipeline_lib.influence.objective import Weighted, requiring_grad, surrogate
from pipeline_lib.policy import Policy


@dataclass(frozen=True)
class _Use:
    """One use of a parameter in the forward pass; a tied parameter has two."""

    module: nn.Module
    name: str
    input_B: torch.Tensor
    output_grad_B: torch.Tensor


def supports(model: nn.Module) -> bool:
    """Whether every parameter belongs to a layer whose gradient can be told apart by trajectory here."""
    return all(
        type(module) in (nn.Linear, nn.Embedding, nn.LayerNorm) or type(module).__name__.endswith("RMSNorm")
        for module in model.modules()
        if _own_parameters(module)
    )


def packed_dots(
    policy: Policy,
    prompts: Sequence[Sequence[Weighted]],
    directions_VD: Sequence[torch.Tensor],
    *,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(<g_p, v_j> as [P, V], |g_p|² as [P]) in float64 on the CPU; `directions_VD` in the model's order."""
    ends = list(accumulate((len(weighted) for weighted in prompts), initial=0))
    recorder = _Recorder(policy.model, [slice(a, b) for a, b in pairwise(ends)], directions_VD)
    with requiring_grad(policy, False):
        with recorder.listening():
            J = surrogate(policy, [w for weighted in prompts for w in weighted], temperature=temperature)
        J.backward()
    recorder.measure_rest()
    return recorder.dots_PV.cpu(), recorder.squared_norms_P.cpu()


class _Recorder:
    """Lays hooks on every layer with parameters and adds up the products as output gradients arrive."""

    def __init__(self, model: nn.Module, rows_P: list[slice], directions_VD: Sequence[torch.Tensor]) -> None:
        parameters = list(model.parameters())
        device = parameters[0].device
        self.parameters = parameters
        self.rows_P = rows_P
        self.directions_VD = dict(zip(parameters, directions_VD, strict=True))
        self.dots_PV = torch.zeros(len(rows_P), directions_VD[0].shape[0], dtype=torch.float64, device=device)
        self.squared_norms_P = torch.zeros(len(rows_P), dtype=torch.float64, device=device)
        self.expected: dict[nn.Parameter, int] = defaultdict(int)
        self.uses: dict[nn.Parameter, list[_Use]] = defaultdict(list)
        self.layers = [module for module in model.modules() if _own_parameters(module)]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """For the forward pass alone: layers are called again while they are measured."""
        handles = [module.register_forward_hook(self._after_forward) for module in self.layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        assert len(self.expected) == len(self.parameters), "a parameter was used outside its own layer"

    def measure_rest(self) -> None:
        """Parameters one of whose uses had no part in the objective."""
        for parameter in list(self.uses):
            self._measure(parameter)

    def _after_forward(self, module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        # No parameter requires grad, so the graph starts at the embeddings.
        if isinstance(module, nn.Embedding):
            output.requires_grad_()
        for parameter in _own_parameters(module).values():
            self.expected[parameter] += 1
        input_B = args[0].detach()

        def arrived(output_grad_B: torch.Tensor) -> None:
            for name, parameter in _own_parameters(module).items():
                self.uses[parameter].append(_Use(module, name, input_B, output_grad_B))
                if len(self.uses[parameter]) == self.expected[parameter]:
                    self._measure(parameter)

        output.register_hook(arrived)

    def _measure(self, parameter: nn.Parameter) -> None:
        uses = self.uses.pop(parameter)
        directions_VD = self.directions_VD[parameter]
        for p, rows in enumerate(self.rows_P):
            gradient_D = sum(_gradient(use, rows) for use in uses).reshape(-1)  # type: ignore[union-attr]
            self.dots_PV[p] += directions_VD @ gradient_D
            self.squared_norms_P[p] += gradient_D @ gradient_D


def _own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters(recurse=False))


def _gradient(use: _Use, rows: slice) -> torch.Tensor:
    """∂J/∂parameter through this use of it by the trajectories in `rows`, float32."""
    input_B, output_grad_B = use.input_B[rows], use.output_grad_B[rows]
    module: Any = use.module
    if isinstance(module, nn.Linear):
        flat_grad = output_grad_B.reshape(-1, module.out_features)
        if use.name == "bias":
            return flat_grad.float().sum(0)
        return (flat_grad.T @ input_B.reshape(-1, module.in_features).to(flat_grad.dtype)).float()
    if isinstance(module, nn.Embedding):
        total = torch.zeros(module.weight.shape, device=output_grad_B.device)
        total.index_add_(0, input_B.reshape(-1), output_grad_B.reshape(-1, module.embedding_dim).float())
        if module.padding_idx is not None:
            total[module.padding_idx] = 0.0
        return total
    with torch.enable_grad():
        parameter = module.get_parameter(use.name).detach().requires_grad_()
        output_B = torch.func.functional_call(module, {use.name: parameter}, (input_B,))
        return torch.autograd.grad(output_B, parameter, output_grad_B.to(output_B.dtype))[0].float()
