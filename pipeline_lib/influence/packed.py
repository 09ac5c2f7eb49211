"""Dot products and norms of many prompts' gradients from one forward and one backward pass.

Hooks keep each layer's input until the gradient of its output arrives. Then the gradient of each prompt is
formed for that one parameter, dotted with every direction, its squared norm added, and dropped.
Suffixes: P prompts of the pack, R rows, T tokens of a prompt, V directions, D entries of a parameter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from pipeline_lib.influence.geometry import Scale
from pipeline_lib.influence.layer_products import Outer, Rows, dense_products, outer_products, row_products
from pipeline_lib.influence.objective import Observe, requiring_grad, surrogate
from pipeline_lib.influence.pack import Pack
from pipeline_lib.influence.validation import Directions
from pipeline_lib.policy import Policy


def supports(model: nn.Module, parameters: Sequence[nn.Parameter]) -> bool:
    """Whether each of the parameters belongs to a layer whose gradient can be told apart by row here."""
    wanted = set(parameters)
    return all(
        type(module) in (nn.Linear, nn.Embedding, nn.LayerNorm) or type(module).__name__.endswith("RMSNorm")
        for module in model.modules()
        if wanted & set(module.parameters(recurse=False))
    )


def packed_dots(
    policy: Policy,
    pack: Pack,
    parameters: Sequence[nn.Parameter],
    directions: Directions,
    *,
    temperature: float,
    observe: Observe | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(<g_p, v_j> as [P, V], |g_p|² as [P]) in float64 on the CPU, in the geometry of `directions`, which are in the
    parameters' order."""
    recorder = _Recorder(policy.model, pack, parameters, directions)
    with requiring_grad(policy, []), recorder.listening():
        J = surrogate(policy, pack, temperature=temperature, observe=observe)
        recorder.begin_backward()
        J.backward()
        recorder.measure_rest()
    return recorder.dots_PV.cpu(), recorder.squared_norms_P.cpu()


@dataclass
class _Seen:
    """What the uses of one parameter in the forward pass have brought so far; a tied parameter has two."""

    n_uses: int = 0
    n_arrived: int = 0
    output_grads_PTO: list[torch.Tensor] = field(default_factory=list)
    inputs_PTI: list[torch.Tensor] = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)
    dense_PD: list[torch.Tensor] = field(default_factory=list)


class _Recorder:
    """Lays hooks on every layer with scored parameters and adds up the products as output gradients arrive."""

    def __init__(
        self,
        model: nn.Module,
        pack: Pack,
        parameters: Sequence[nn.Parameter],
        directions: Directions,
    ) -> None:
        self.directions_VD = dict(zip(parameters, directions.values_VD, strict=True))
        scales = [] if directions.geometry is None else directions.geometry.scales
        self.scales: dict[nn.Parameter, Scale] = dict(zip(parameters, scales, strict=False))
        self.n_rows = len(pack.input_ids_RS)
        self.rows_PK = pack.rows_PK
        # Then a prompt's rows need not be gathered.
        self.rows_in_order = pack.rows_PK.numel() == self.n_rows
        device = pack.input_ids_RS.device
        self.dots_PV = torch.zeros(pack.n_prompts, len(directions.names), dtype=torch.float64, device=device)
        self.squared_norms_P = torch.zeros(pack.n_prompts, dtype=torch.float64, device=device)
        self.seen: dict[nn.Parameter, _Seen] = defaultdict(_Seen)
        self.layers = {module: own for module in model.modules() if (own := self._scored(module))}
        self.in_backward = False
        self.paused = False

    def _scored(self, module: nn.Module) -> dict[str, nn.Parameter]:
        return {n: p for n, p in module.named_parameters(recurse=False) if p in self.directions_VD}

    @contextmanager
    def listening(self) -> Iterator[None]:
        handles = [module.register_forward_hook(self._after_forward) for module in self.layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_backward(self) -> None:
        """From here on a layer that is called is called by a checkpoint, again."""
        self.in_backward = True
        assert len(self.seen) == len(self.directions_VD), "a parameter was used outside its own layer"

    def measure_rest(self) -> None:
        """Parameters one of whose uses had no part in the objective."""
        for parameter in list(self.seen):
            self._measure(parameter)

    def _after_forward(self, module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if self.paused:
            return
        if not self.in_backward:
            for parameter in self.layers[module].values():
                self.seen[parameter].n_uses += 1
        if not torch.is_grad_enabled():  # the first pass of a checkpointed block, which comes again
            return
        if not output.requires_grad:  # no parameter does: the graph starts at the first scored layer
            output.requires_grad_()
        held = [args[0].detach()]

        def arrived(output_grad: torch.Tensor) -> None:
            self._take(module, held.pop(), output_grad)

        output.register_hook(arrived)

    def _take(self, module: nn.Module, input_: torch.Tensor, output_grad: torch.Tensor) -> None:
        output_grad_PTO = self._by_prompt(output_grad)
        for name, parameter in self.layers[module].items():
            seen, scale = self.seen[parameter], self.scales.get(parameter, ())
            seen.n_arrived += 1
            if name == "bias":
                seen.dense_PD.append(_times(output_grad_PTO.float().sum(1), scale[:1]))
            elif isinstance(module, nn.Linear):
                seen.output_grads_PTO.append(_times(output_grad_PTO, scale[:1]))
                seen.inputs_PTI.append(_times(self._by_prompt(input_), scale[1:]))
            elif isinstance(module, nn.Embedding):
                ids_PE = self._by_prompt(input_[..., None])[..., 0]
                grad_PEI = _without_padding(output_grad_PTO, ids_PE, module.padding_idx)
                if scale:
                    grad_PEI = _times(grad_PEI, (scale[0][ids_PE][..., None], scale[1]))
                seen.rows.append(Rows(ids_PE, grad_PEI))
            else:
                normalised_PTI = self._by_prompt(self._normalised(module, name, input_))
                weight_grad_PD = (output_grad_PTO.float() * normalised_PTI.float()).sum(1)
                seen.dense_PD.append(_times(weight_grad_PD, scale[:1]))
            if seen.n_arrived == seen.n_uses:
                self._measure(parameter)

    def _by_prompt(self, x_R: torch.Tensor) -> torch.Tensor:
        """[R, ..., D] as [P, T, D], with zeros for the rows that a prompt has not."""
        assert len(x_R) == self.n_rows, "a layer was called with other rows than those of the pack"
        if not self.rows_in_order:
            x_R = torch.cat([x_R, torch.zeros_like(x_R[:1])])[self.rows_PK]
        return x_R.reshape(len(self.rows_PK), -1, x_R.shape[-1])

    def _normalised(self, module: nn.Module, name: str, input_: torch.Tensor) -> torch.Tensor:
        """A norm is affine in its weight, whether it multiplies by w or by 1 + w."""
        self.paused = True
        with torch.no_grad():
            weight = module.get_parameter(name)
            one, zero = (
                torch.func.functional_call(module, {name: value}, (input_,))
                for value in (torch.ones_like(weight), torch.zeros_like(weight))
            )
        self.paused = False
        return one - zero

    def _measure(self, parameter: nn.Parameter) -> None:
        seen = self.seen.pop(parameter)
        directions_VD = self.directions_VD[parameter]
        rows = seen.rows[0] if seen.rows else None
        assert len(seen.rows) <= 1, "an embedding was used twice"
        if seen.dense_PD:
            products = dense_products(torch.stack(seen.dense_PD).sum(0), directions_VD)
        elif seen.inputs_PTI:
            outer = Outer(_joined(seen.output_grads_PTO), _joined(seen.inputs_PTI))
            products = outer_products(outer, rows, directions_VD)
        elif rows is not None:
            products = row_products(rows, directions_VD)
        else:
            return
        self.dots_PV += products[0]
        self.squared_norms_P += products[1]


def _times(x: torch.Tensor, factors: Scale) -> torch.Tensor:
    return math.prod(factors, start=x.float()).to(x.dtype) if factors else x


def _without_padding(grad_PEI: torch.Tensor, ids_PE: torch.Tensor, padding_idx: int | None) -> torch.Tensor:
    """torch's embedding has no gradient for its padding_idx."""
    return grad_PEI if padding_idx is None else grad_PEI.masked_fill((ids_PE == padding_idx)[..., None], 0.0)


def _joined(parts_PT: list[torch.Tensor]) -> torch.Tensor:
    return parts_PT[0] if len(parts_PT) == 1 else torch.cat(parts_PT, dim=1)
