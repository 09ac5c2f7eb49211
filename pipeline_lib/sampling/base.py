"""What every sampler is: a walk through epochs of the pool that decides on each prompt it meets."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline_lib.records import Outcome


class Observation(NamedTuple):
    """How one rollout group of a prompt ended."""

    prompt_id: str
    outcome: Outcome


class Decision(NamedTuple):
    prompt_id: str
    epoch: int
    keep: bool
    keep_probability: float
    reason: str


class PromptSampler(ABC):
    """Walks through the pool, every epoch in a new order, and keeps or skips each prompt.

    Order and draws are pure functions of (seed, epoch, prompt), so that decisions depend on seed and
    history alone and a resumed sampler goes on as if it had never stopped.
    """

    drops_zero_variance = True
    """Whether groups without signal leave the batch and are made up for by another round."""

    def __init__(self, prompt_ids: Sequence[str], seed: int) -> None:
        if not prompt_ids:
            raise ValueError("the pool is empty: a sampler needs at least one prompt")
        self._pool = sorted(set(prompt_ids))
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._kept_this_step: set[str] = set()

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self._epoch

    def propose(self, n: int) -> list[Decision]:
        """Decide on prompts until `n` are kept, or the pool has been gone through once.

        A prompt is kept at most once a step, so fewer than `n` may be kept, even none.
        """
        decisions: list[Decision] = []
        missing = n
        for _ in range(len(self._pool)):
            if missing == 0:
                break
            epoch, prompt_id = self._next()
            if prompt_id in self._kept_this_step:
                continue
            decision = self._decide(prompt_id, epoch)
            decisions.append(decision)
            if decision.keep:
                self._kept_this_step.add(prompt_id)
                missing -= 1
        return decisions

    def end_step(self) -> None:
        """Called once after each training step."""
        self._kept_this_step.clear()

    def _next(self) -> tuple[int, str]:
        order = self._order(self._epoch)
        epoch, prompt_id = self._epoch, order[self._position]
        self._position += 1
        if self._position == len(order):
            self._epoch, self._position = self._epoch + 1, 0
        return epoch, prompt_id

    def _order(self, epoch: int) -> list[str]:
        if getattr(self, "_ordered_epoch", None) != epoch:
            self._ordered = list(self._pool)
            random.Random(f"{self._seed}:order:{epoch}").shuffle(self._ordered)
            self._ordered_epoch = epoch
        return self._ordered

    def _draw(self, prompt_id: str, epoch: int) -> float:
        return random.Random(f"{self._seed}:{epoch}:{prompt_id}").random()

    @abstractmethod
    def _decide(self, prompt_id: str, epoch: int) -> Decision: ...

    @abstractmethod
    def observe(self, observations: Sequence[Observation]) -> None:
        """Learn how rollout groups ended, oldest first."""

    def metrics(self) -> dict[str, float]:
        return {"epoch": float(self._epoch)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "position": self._position,
            "kept_this_step": sorted(self._kept_this_step),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._position = state["epoch"], state["position"]
        self._kept_this_step = set(state["kept_this_step"])
