"""A policy under training, with the adapters that are trained beside it, if any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from pipeline_lib.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

    from peft import PeftModel


@dataclass(frozen=True)
class Trained:
    """`adapters` wraps the policy's own model, whose layers carry them."""

    policy: Policy
    adapters: PeftModel | None = None

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The trainable ones, by name; a tied one once."""
        return {name: p for name, p in self.policy.model.named_parameters() if p.requires_grad}

    @contextmanager
    def before_training(self) -> Iterator[Policy]:
        """The policy as the stage found it; only for one with adapters."""
        assert self.adapters is not None
        with self.adapters.disable_adapter():
            yield self.policy

    @torch.no_grad()
    def whole_weights(self) -> dict[str, torch.Tensor]:
        """The policy's state dict, adapters added to the weights that they stand beside; nothing is changed."""
        if self.adapters is None:
            return self.policy.model.state_dict()
        weights = {}
        for name, tensor in self.policy.model.state_dict().items():
            module, _, kind = name.partition(".base_layer.")
            if kind == "weight":
                layer: Any = self.policy.model.get_submodule(module)
                tensor = tensor + sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
            if ".lora_" not in name:
                weights[name.replace(".base_layer.", ".")] = tensor
        return weights

    def save_parameters(self, path: Path) -> None:
        save_file({name: p.detach().contiguous() for name, p in self.parameters().items()}, str(path))

    @torch.no_grad()
    def load_parameters(self, path: Path) -> None:
        """Raises KeyError where the file lacks one of the trainable parameters."""
        saved = load_file(str(path), device=str(self.policy.device))
        for name, parameter in self.parameters().items():
            parameter.copy_(saved[name])
