"""The directions that influence is measured along: the mean gradient of each validation set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pipeline_lib.atomic import new_file
from pipeline_lib.influence.drift import DriftMeter
from pipeline_lib.influence.geometry import Geometry, SecondMoment, scaled
from pipeline_lib.influence.objective import Gradient, gradient, weighted_trajectories
from pipeline_lib.influence.pack import attention_share, rows_of
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

ValidationGroups = Mapping[str, Sequence[RolloutGroup]]

BATCH = 8
"""Validation prompts of one gradient that the second moment is taken of."""


@dataclass(frozen=True)
class Directions:
    """The v_j of V validation sets: `values_VD` holds one [V, D] for each scored parameter, float32.

    They are in `geometry`, where there is one; what is compared with them has to be as well.
    """

    names: tuple[str, ...]
    values_VD: list[torch.Tensor]
    geometry: Geometry | None = None

    def norms(self) -> list[float]:
        squares = torch.stack([v_VD.square().sum(1).double().cpu() for v_VD in self.values_VD])
        return squares.sum(0).sqrt().tolist()

    def of_set(self, j: int, parameters: Sequence[nn.Parameter]) -> Gradient:
        return [v_VD[j].view_as(p) for v_VD, p in zip(self.values_VD, parameters, strict=True)]

    def derivative(self, j: int, parameters: Sequence[nn.Parameter]) -> Gradient:
        """Whose plain inner product with a gradient is v_j's with it in the geometry."""
        v = self.of_set(j, parameters)
        return v if self.geometry is None else self.geometry.scaled(v)

    def over(self, parameters: Sequence[nn.Parameter], wanted: Sequence[nn.Parameter]) -> Directions:
        """The part for `wanted` of directions that are for `parameters`."""
        by_parameter = dict(zip(parameters, self.values_VD, strict=True))
        geometry = None if self.geometry is None else self.geometry.over(parameters, wanted)
        return Directions(self.names, [by_parameter[parameter] for parameter in wanted], geometry)

    def save(self, path: Path) -> None:
        tensors = {f"{i:05d}": v_VD.contiguous() for i, v_VD in enumerate(self.values_VD)}
        if self.geometry is not None:
            tensors |= {
                f"scale-{i:05d}-{axis}": part
                for i, scale in enumerate(self.geometry.scales)
                for axis, part in enumerate(scale)
            }
        with new_file(path) as temporary:
            save_file(tensors, temporary, metadata={str(j): name for j, name in enumerate(self.names)})

    @classmethod
    def load(cls, path: Path, names: Sequence[str], device: torch.device) -> Directions:
        tensors = load_file(path, device=str(device))
        values = [tensors[key] for key in sorted(tensors) if not key.startswith("scale-")]
        scales = [
            tuple(tensors[key] for axis in range(2) if (key := f"scale-{i:05d}-{axis}") in tensors)
            for i in range(len(values))
        ]
        return cls(tuple(names), values, Geometry(scales) if any(scales) else None)


def validation_directions(
    policy: Policy,
    validation: ValidationGroups,
    parameters: Sequence[nn.Parameter],
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
    adam: bool = False,
    meter: DriftMeter | None = None,
) -> Directions:
    """The mean gradient of each set's groups with signal. `progress` is told how many more of these are done,
    `meter` what their tokens' ratios are. With `adam` in the geometry of the second moment of these gradients, taken
    of BATCH groups at a time.

    Raises ValueError when no group of a set has signal.
    """
    check_signal(validation)
    values_VD = [torch.zeros(len(validation), parameter.numel(), device=parameter.device) for parameter in parameters]
    moment = SecondMoment()
    for j, groups in enumerate(validation.values()):
        with_signal = [group for group in groups if group.has_signal]
        size = BATCH if adam else len(with_signal)
        for start in range(0, len(with_signal), size):
            batch = with_signal[start : start + size]
            v = mean_gradient(
                policy,
                batch,
                parameters,
                temperature=temperature,
                tokens_per_micro_batch=tokens_per_micro_batch,
                meter=meter,
            )
            for rows_VD, part in zip(values_VD, v, strict=True):
                rows_VD[j] += part.reshape(-1) * (len(batch) / len(with_signal))
            if adam:
                moment.add(v)
            progress(len(batch))
    if not adam:
        return Directions(tuple(validation), values_VD)
    geometry = moment.geometry()
    for rows_VD, parameter, scale in zip(values_VD, parameters, geometry.scales, strict=True):
        for v_D in rows_VD:
            v_D.copy_(scaled(v_D.view_as(parameter), scale).view(-1))
    return Directions(tuple(validation), values_VD, geometry)


def check_signal(validation: ValidationGroups) -> None:
    """Raises ValueError for a set none of whose groups has signal, before anything is computed."""
    for name, groups in validation.items():
        if not any(group.has_signal for group in groups):
            outcomes = Counter(group.outcome for group in groups)
            found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "no group"
            raise ValueError(
                f"validation set {name!r}: none of its {len(groups)} groups has a gradient ({found}), so it "
                "gives influence no direction; give it prompts that the policy solves sometimes, raise "
                "offline.validation_samples, or take the set out of prompts.validation"
            )


def mean_gradient(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    parameters: Sequence[nn.Parameter],
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    meter: DriftMeter | None = None,
) -> Gradient:
    """v, the mean of the gradients of the groups with signal: linear, so one accumulated backward pass."""
    with_signal = [weighted_trajectories(group) for group in groups if group.has_signal]
    share = attention_share(policy)
    rows = [
        [(trajectory, weight / len(with_signal)) for trajectory, weight in row]
        for weighted in with_signal
        for row in rows_of(weighted, share, tokens_per_micro_batch)
    ]
    return gradient(
        policy,
        rows,
        parameters,
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        observe=None if meter is None else meter.observe,
    )
