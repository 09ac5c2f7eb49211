"""What every sampler is: a walk through epochs of the pool that decides on each prompt it meets."""

from __future__ import annotations

import random
import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline_lib.records import Outcome, RolloutGroup


class Observation(NamedTuple):
    """How one rollout group of a prompt ended: `n` graded completions, `n_correct` of them correct.

    `has_signal` says whether the rewards of the group differ. Where they are 1 and 0 for correct and wrong, that is
    what the counts say as well; with partial credit a group may teach though none of it, or all of it, is correct.
    """

    prompt_id: str
    n: int
    n_correct: int
    has_signal: bool

    @classmethod
    def of(cls, group: RolloutGroup) -> Observation:
        return cls(group.prompt_id, len(group.graded), group.n_correct, group.has_signal)

    @property
    def outcome(self) -> Outcome:
        """What samplers go by: a group is mixed if its rewards differ, whoever of it is correct.

        One whose rewards are equal is of the class that most of it is in; half and half is all_right.
        """
        if self.n == 0:
            return "ungraded"
        if self.has_signal:
            return "mixed"
        return "all_right" if 2 * self.n_correct >= self.n else "all_wrong"

    @property
    def n_high(self) -> int:
        """How many of the `n` are on the better side of the group's difference.

        The correct ones, where there are correct and wrong ones. Half, where the rewards differ and correctness does
        not: that they differ is then all that is known, and under a uniform prior the expected share is 1/2. All or
        none where the rewards are equal.
        """
        if not self.has_signal:
            return self.n if self.outcome == "all_right" else 0
        return self.n_correct if 0 < self.n_correct < self.n else self.n // 2


class Judgement(NamedTuple):
    """What a sampler thinks of a prompt; `mixed_chance` where it has a model of the group's outcome."""

    keep_probability: float
    reason: str
    mixed_chance: float | None = None


class Decision(NamedTuple):
    """`round` counts the proposals of a step from 0: the observations of a round come before the next one."""

    prompt_id: str
    epoch: int
    round: int
    keep: bool
    keep_probability: float
    reason: str


class PromptSampler(ABC):
    """Walks through the pool, every epoch in a new order, and keeps or skips each prompt.

    Every prompt is decided on exactly once an epoch and kept at most once a step: one that was kept in this step
    already, at the end of the last epoch, waits for the next step and then comes first. Order and draws are pure
    functions of (seed, epoch, prompt), so that decisions depend on seed and history alone and a resumed sampler
    goes on as if it had never stopped.
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
        self._waiting: list[str] = []
        self._steps = 0
        self._round = 0
        self._kept_this_step: set[str] = set()
        self._selective = False
        self._expected: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._zero_variance: set[str] = set()
        self._revivals = 0
        self._last_step: dict[str, float] = {"revivals": 0.0}

    @property
    def pool_size(self) -> int:
        return len(self._pool)

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self._epoch

    def propose(self, n: int) -> list[Decision]:
        """Decide on prompts until `n` are kept, or as many decisions were taken as there are prompts.

        It ends earlier where only prompts that were kept in this step are left of the epoch. So fewer than `n` may
        be kept, even none.
        """
        decisions: list[Decision] = []
        missing = n
        while missing > 0 and len(decisions) < len(self._pool):
            epoch = self._epoch
            prompt_id = self._next()
            if prompt_id is None:
                break
            probability, reason, chance = self._decide(prompt_id)
            keep = self._draw(prompt_id, epoch) < probability
            decisions.append(Decision(prompt_id, epoch, self._round, keep, probability, reason))
            self._selective = self._selective or probability < 1
            if keep:
                self._kept_this_step.add(prompt_id)
                missing -= 1
                if chance is not None:
                    self._expected.append(chance)
        self._round += 1
        return decisions

    def recall(self, observations: Sequence[Observation]) -> None:
        """Learn from groups of earlier stages and the offline rollouts, oldest first."""
        for observation in observations:
            if observation.outcome == "ungraded":  # says nothing
                continue
            if observation.outcome == "mixed":
                self._zero_variance.discard(observation.prompt_id)
            else:
                self._zero_variance.add(observation.prompt_id)
            self._learn(observation)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Learn how groups that were rolled out in this step ended, oldest first."""
        for observation in observations:
            self._outcomes[observation.outcome] += 1
            self._revivals += observation.outcome == "mixed" and observation.prompt_id in self._zero_variance
            self.recall([observation])

    def end_step(self) -> None:
        """Called once after each training step."""
        del self._outcomes["ungraded"]
        if graded := self._outcomes.total():
            self._steer({outcome: n / graded for outcome, n in self._outcomes.items()})
        self._last_step = {"revivals": float(self._revivals)}
        if self._expected:
            self._last_step["expected_mixed_share"] = statistics.fmean(self._expected)
        self._outcomes.clear()
        self._kept_this_step.clear()
        self._expected.clear()
        self._selective, self._revivals, self._round = False, 0, 0
        self._steps += 1

    def metrics(self) -> dict[str, float]:
        """Epochs completed and, of the last step: `revivals`, prompts that were zero-variance the time before and
        came out mixed, and `expected_mixed_share` of the kept prompts, where the sampler has a model of it."""
        return {"epoch": float(self._epoch), **self._last_step}

    def _next(self) -> str | None:
        """The next prompt of the epoch that was not kept in this step."""
        order = self._order(self._epoch)
        found = None
        if self._waiting and self._waiting[0] not in self._kept_this_step:  # those of earlier steps come first
            found = self._waiting.pop(0)
        while found is None and self._position < len(order):
            prompt_id = order[self._position]
            self._position += 1
            if prompt_id in self._kept_this_step:
                self._waiting.append(prompt_id)
            else:
                found = prompt_id
        if self._position == len(order) and not self._waiting:
            self._epoch, self._position = self._epoch + 1, 0
        return found

    def _order(self, epoch: int) -> list[str]:
        if getattr(self, "_ordered_epoch", None) != epoch:
            self._ordered = list(self._pool)
            random.Random(f"{self._seed}:order:{epoch}").shuffle(self._ordered)
            self._ordered_epoch = epoch
        return self._ordered

    def _draw(self, prompt_id: str, epoch: int) -> float:
        return random.Random(f"{self._seed}:{epoch}:{prompt_id}").random()

    @abstractmethod
    def _decide(self, prompt_id: str) -> Judgement: ...

    def _learn(self, observation: Observation) -> None:  # noqa: B027 (not every sampler has a memory)
        """Learn how one graded group ended."""

    def _steer(self, shares: Mapping[str, float]) -> None:  # noqa: B027 (nor a controller)
        """Called at the end of a step with the share that each outcome has of its graded groups."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "position": self._position,
            "waiting": list(self._waiting),
            "steps": self._steps,
            "round": self._round,
            "kept_this_step": sorted(self._kept_this_step),
            "selective": self._selective,
            "expected": list(self._expected),
            "outcomes": dict(self._outcomes),
            "zero_variance": sorted(self._zero_variance),
            "revivals": self._revivals,
            "last_step": dict(self._last_step),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._position = state["epoch"], state["position"]
        self._waiting = list(state["waiting"])
        self._steps, self._round = state["steps"], state["round"]
        self._kept_this_step = set(state["kept_this_step"])
        self._selective = state["selective"]
        self._expected = list(state["expected"])
        self._outcomes = Counter(state["outcomes"])
        self._zero_variance = set(state["zero_variance"])
        self._revivals = state["revivals"]
        self._last_step = dict(state["last_step"])
