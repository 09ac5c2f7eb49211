"""Sums over the tokens of an update, gathered from micro-batches and processes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from pipeline_lib.grpo.loss import LossTerms
from pipeline_lib.policy.logprobs import TokenLogprobs


@dataclass
class Spread:
    total: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, values_N: torch.Tensor) -> None:
        self.merge(Spread(float(values_N.sum()), float(values_N.min()), float(values_N.max())))

    def merge(self, other: Spread) -> None:
        self.total += other.total
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)


@dataclass
class TokenSums:
    """Of `n` tokens; log-probs in nats."""

    n: int = 0
    loss: float = 0.0
    k3: float = 0.0
    entropy: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    difference: Spread = field(default_factory=Spread)
    importance: Spread = field(default_factory=Spread)
    non_finite_in: list[str] = field(default_factory=list)
    """Prompts of the first micro-batch whose loss is not finite."""

    def add(
        self, terms: LossTerms, current: TokenLogprobs, behaviour_logprobs_BT: torch.Tensor, mask_BT: torch.Tensor
    ) -> None:
        self.n += int(mask_BT.sum())
        self.loss += float(terms.loss.detach())
        assert current.entropy_BT is not None
        self.entropy += float(current.entropy_BT.detach().sum())
        self.clipped_low += int(terms.clipped_low_BT.sum())
        self.clipped_high += int(terms.clipped_high_BT.sum())
        self.difference.add((current.logprobs_BT.detach() - behaviour_logprobs_BT).abs()[mask_BT])
        if terms.k3_BT is not None:
            self.k3 += float(terms.k3_BT.sum())
        if terms.importance_BT is not None:
            self.importance.add(terms.importance_BT[mask_BT])

    def mean(self, total: float) -> float | None:
        return total / self.n if self.n else None


def merged(parts: Iterable[TokenSums]) -> TokenSums:
    whole = TokenSums()
    for part in parts:
        for name in ("n", "loss", "k3", "entropy", "clipped_low", "clipped_high"):
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
        whole.difference.merge(part.difference)
        whole.importance.merge(part.importance)
        whole.non_finite_in = whole.non_finite_in or part.non_finite_in
    return whole
