"""What the GRPO loop asks of a back end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import torch

from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.policy import Policy, TokenBatch, token_logprobs
from pipeline_lib.policy.logprobs import EntropyKind, TokenLogprobs


class NonFiniteGradient(ArithmeticError):
    """The gradient is not finite; the optimizer was not stepped. The message says where."""


class Backend(Protocol):
    """Every process calls the same methods in the same order."""

    ranks: Ranks
    trained: Trained
    """Whole on every process and up to date: rollouts are sampled from its policy."""

    def checkpointing(self, wanted: bool) -> AbstractContextManager[None]:
        """Around an update: whether blocks are run again in the backward pass."""
        ...

    def logprobs(self, batch: TokenBatch, entropy: EntropyKind) -> TokenLogprobs:
        """Differentiable log-probs of this process's micro-batch."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Around the forward and backward pass of one; all processes have equally many, and add up at the last."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of this micro-batch's share of the whole batch's loss."""
        ...

    def apply(self, learning_rate: float, max_grad_norm: float) -> float:
        """Clip the gradient, step the optimizer, drop the gradient; returns its norm from before.

        Raises NonFiniteGradient with parameters and optimizer untouched.
        """
        ...

    def save(self, directory: Path) -> None:
        """Parameters and optimizer state, each process its part."""
        ...

    def load(self, directory: Path) -> None:
        """Take back what `save` wrote. Raises ValueError where the processes do not fit it."""
        ...


class LogprobModule(torch.nn.Module):
    """`token_logprobs` as the forward pass of a module, for wrappers that hook into forward and backward."""

    def __init__(self, policy: Policy, temperature: float) -> None:
        super().__init__()
        self.model = policy.model
        self._policy = policy
        self._temperature = temperature

    def forward(self, batch: TokenBatch, entropy: EntropyKind) -> tuple[torch.Tensor, torch.Tensor | None]:
        result = token_logprobs(self._policy, batch, temperature=self._temperature, entropy=entropy)
        return result.logprobs_BT, result.entropy_BT
