"""What an engine is: prompts in, n sampled completions of each out, with the log-prob of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline_lib.config import Generation
from pipeline_lib.records import FinishReason


@dataclass(frozen=True, slots=True)
class SamplingParams:
    n: int
    """Completions of each prompt."""
    temperature: float
    max_tokens: int
    batch_size: int
    """Sequences decoded at once."""

    @classmethod
    def of(cls, generation: Generation, n: int) -> SamplingParams:
        return cls(
            n=n,
            temperature=generation.temperature,
            max_tokens=generation.max_tokens,
            batch_size=generation.batch_size,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """`token_ids` holds what was sampled, the stop token included; `logprobs` are float32-representable."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str


class Engine(Protocol):
    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        """`params.n` completions of each prompt, in the prompts' order; all randomness comes from `seed`."""
        ...
