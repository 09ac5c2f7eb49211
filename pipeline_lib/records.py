"""The few nouns that everything speaks of: prompts, trajectories, rollout groups."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from typing import Any, Literal, TypedDict

REWARD_TOLERANCE = 1e-6
"""Rewards closer than this are one reward: float noise must not count as signal."""

Outcome = Literal["all_right", "all_wrong", "mixed", "ungraded"]
FinishReason = Literal["stop", "length"]
VerifierStatus = Literal["ok", "unparseable_answer", "unparseable_gold", "timeout", "error"]


class Message(TypedDict):
    role: str
    content: str


def prompt_id_of(data_source: str, messages: Sequence[Message]) -> str:
    """Identity is content: 16 hex digits of the sha256 of the data source and the messages."""
    turns = ", ".join([f"[{quoted(m['role'])}, {quoted(m['content'])}]" for m in messages])
    content = f"[{quoted(data_source)}, [{turns}]]"  # as json.dumps has it, in a fifth of the time
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question with its gold answer and the verifier that grades answers to it.

    `extra` holds what the data set says besides (kind, difficulty, ...); it must be JSON-serialisable.
    """

    data_source: str
    messages: tuple[Message, ...]
    gold: str
    verifier: str
    verifier_args: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_id(self) -> str:
        return prompt_id_of(self.data_source, self.messages)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one completion. `reward` is None when it could not be graded (timeout, error)."""

    reward: float | None
    correct: bool
    status: VerifierStatus = "ok"

    def __post_init__(self) -> None:
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"reward={self.reward}: must be finite, or None where it could not be graded")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One completion of a prompt, graded.

    `behaviour_logprobs[t]` is the log-probability of `completion_token_ids[t]` under the distribution it was
    sampled from, temperature and top-p included.
    """

    prompt_id: str
    sample_index: int
    prompt_token_ids: tuple[int, ...]
    completion_token_ids: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str
    reward: float | None
    correct: bool
    verifier_status: VerifierStatus


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The K trajectories of one prompt, sampled from one policy."""

    prompt_id: str
    trajectories: tuple[Trajectory, ...]

    @property
    def graded(self) -> tuple[Trajectory, ...]:
        return tuple(t for t in self.trajectories if t.reward is not None)

    @property
    def rewards(self) -> list[float]:
        return [t.reward for t in self.trajectories if t.reward is not None]

    @property
    def n_correct(self) -> int:
        return sum(t.correct for t in self.graded)

    @property
    def outcome(self) -> Outcome:
        """Decided from `correct` alone, whatever the reward's scale."""
        if not self.graded:
            return "ungraded"
        if self.n_correct == len(self.graded):
            return "all_right"
        return "all_wrong" if self.n_correct == 0 else "mixed"

    @property
    def has_signal(self) -> bool:
        """Whether the rewards differ; a group without signal has advantage and gradient exactly 0."""
        rewards = self.rewards
        return len(rewards) > 1 and max(rewards) - min(rewards) > REWARD_TOLERANCE
