"""What an engine is: prompts in, n sampled completions of each out, with the log-prob of every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from pipeline_lib.config import Generation
from pipeline_lib.policy import Policy
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


class EngineFailed(RuntimeError):
    """An engine could not sample."""


class EngineOverloaded(EngineFailed):
    """Fewer sequences at once may help."""


class Engine(Protocol):
    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        """`params.n` completions of each prompt, in the prompts' order; all randomness comes from `seed`."""
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Sample from `weights` from now on, named as in the model's state dict; nothing of the old ones stays."""
        ...

    def close(self) -> None:
        """Give back what it holds beside the policy; it is not used again."""
        ...


def make_completion(policy: Policy, token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Completion:
    """`token_ids` are what was sampled, up to and with the stop token if there was one."""
    stopped = token_ids[-1] in policy.eos_token_ids
    text = policy.tokenizer.decode(list(token_ids[:-1] if stopped else token_ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return Completion(
        token_ids=token_ids,
        logprobs=logprobs,
        finish_reason="stop" if stopped else "length",
        text=text.encode("utf-8", "replace").decode("utf-8"),
    )
