"""An engine with weights of its own is refused where its log-probs are not those of the policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from rollout_cases import as_group, tiny_policy

from pipeline_lib.policy import collate, token_logprobs
from pipeline_lib.rollout import Completion, EngineMismatch, SamplingParams, TransformersEngine, check_agreement

Told = Callable[[Sequence[int], Completion, SamplingParams], Sequence[float]]


class Telling(TransformersEngine):
    """Samples from weights of its own, and tells log-probs of the samples that need not be theirs."""

    def __init__(self, told: Told, *, seed: int = 0) -> None:
        super().__init__(tiny_policy(seed=seed))
        self.told = told

    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        return [
            [replace(c, logprobs=tuple(self.told(prompt, c, params))) for c in group]
            for prompt, group in zip(prompts_token_ids, super().generate(prompts_token_ids, params, seed), strict=True)
        ]


def before_temperature(prompt: Sequence[int], completion: Completion, params: SamplingParams) -> list[float]:
    """As vLLM tells them without --logprobs-mode processed_logprobs."""
    policy = tiny_policy()
    batch = collate(as_group(list(prompt), [completion]).trajectories, policy.pad_token_id, policy.device)
    with torch.no_grad():
        raw: list[float] = token_logprobs(policy, batch, temperature=1.0).logprobs_BT[0].tolist()
    return raw


def true(prompt: Sequence[int], completion: Completion, params: SamplingParams) -> Sequence[float]:
    return completion.logprobs


def of_a_nucleus(prompt: Sequence[int], completion: Completion, params: SamplingParams) -> list[float]:
    """As where the least likely tenth of the probability is never sampled."""
    return [logprob - math.log(0.9) for logprob in completion.logprobs]


def none_at_all(prompt: Sequence[int], completion: Completion, params: SamplingParams) -> list[float]:
    return [math.nan] * len(completion.logprobs)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_an_engine_with_the_policys_weights_agrees(temperature: float) -> None:
    assert check_agreement(Telling(true), tiny_policy(), temperature=temperature) < 1e-5


@pytest.mark.parametrize("told", [before_temperature, of_a_nucleus, none_at_all], ids=lambda told: told.__name__)
def test_log_probs_of_another_distribution_are_refused(told: Told) -> None:
    with pytest.raises(EngineMismatch, match="log-probs of another distribution; rollouts of it are refused"):
        check_agreement(Telling(told), tiny_policy(), temperature=0.7)


def test_raw_log_probs_are_the_processed_ones_at_temperature_1() -> None:
    assert check_agreement(Telling(before_temperature), tiny_policy(), temperature=1.0) < 1e-5


def test_other_weights_are_refused() -> None:
    with pytest.raises(EngineMismatch, match="it samples from other weights"):
        check_agreement(Telling(true, seed=1), tiny_policy(), temperature=0.7)
