"""Plain torch: AdamW, and DistributedDataParallel where there are several processes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from pipeline_lib.config import Train
from pipeline_lib.grpo.backends.base import LogprobModule, NonFiniteGradient
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.policy import Policy, TokenBatch
from pipeline_lib.policy.checkpointing import checkpointing
from pipeline_lib.policy.logprobs import EntropyKind, TokenLogprobs


def make_optimizer(policy: Policy, train: Train) -> torch.optim.Optimizer:
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    return torch.optim.AdamW(parameters, lr=train.learning_rate, weight_decay=train.weight_decay)


class TorchTraining:
    def __init__(self, trained: Trained, optimizer: torch.optim.Optimizer, temperature: float, ranks: Ranks) -> None:
        self.ranks, self.trained = ranks, trained
        self._optimizer = optimizer
        module = LogprobModule(trained.policy, temperature)
        self._several = DistributedDataParallel(module) if ranks.size > 1 else None
        self._module: torch.nn.Module = self._several or module

    def checkpointing(self, wanted: bool) -> AbstractContextManager[None]:
        return checkpointing(self.trained.policy.model, wanted, reentrant=False)

    def logprobs(self, batch: TokenBatch, entropy: EntropyKind) -> TokenLogprobs:
        return TokenLogprobs(*self._module(batch, entropy))

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if self._several is None or last else self._several.no_sync()

    def backward(self, loss: torch.Tensor) -> None:
        # DistributedDataParallel takes the mean over processes; the loss is a share of the whole batch's.
        (loss * self.ranks.size).backward()

    def apply(self, learning_rate: float, max_grad_norm: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        norm = torch.nn.utils.clip_grad_norm_(self.trained.parameters().values(), max_grad_norm)
        where = None if torch.isfinite(norm) else self._first_non_finite()
        if where is None:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if where is not None:
            raise NonFiniteGradient(f"gradient norm {float(norm)}, first in {where}")
        return float(norm)

    def _first_non_finite(self) -> str:
        gradients = ((name, p.grad) for name, p in self.trained.parameters().items())
        return next((name for name, g in gradients if g is not None and not g.isfinite().all()), "their sum")

    def save(self, directory: Path) -> None:
        if self.ranks.first:
            self.trained.save_parameters(directory / "model.safetensors")
            torch.save(self._optimizer.state_dict(), directory / "optimizer.pt")

    def load(self, directory: Path) -> None:
        self.trained.load_parameters(directory / "model.safetensors")
        state = torch.load(directory / "optimizer.pt", map_location="cpu", weights_only=True)
        self._optimizer.load_state_dict(state)
