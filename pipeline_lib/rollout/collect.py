"""Rolling out prompts: encode, sample, grade."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from pipeline_lib.policy import Policy
from pipeline_lib.records import Prompt, RolloutGroup, Trajectory, Verdict
from pipeline_lib.rollout.engine import Completion, Engine, EngineFailed, EngineOverloaded, SamplingParams

logger = logging.getLogger(__name__)

Grade = Callable[[Sequence[tuple[Prompt, str]]], list[Verdict]]


@dataclass(frozen=True)
class Rollout:
    groups: list[RolloutGroup]
    generate_seconds: float
    verify_seconds: float
    generated_tokens: int


def roll_out(
    policy: Policy, engine: Engine, grade: Grade, prompts: Sequence[Prompt], params: SamplingParams, seed: int
) -> Rollout:
    """One graded group of `params.n` completions for each prompt, in the prompts' order.

    Where they are too many for the memory, all are sampled again, half as many at once; the draws are others then.
    Raises EngineFailed when one at a time is too many as well, ValueError where the policy knows no such position.
    """
    started = time.perf_counter()
    prompts_token_ids = [tuple(policy.encode(prompt.messages)) for prompt in prompts]
    _refuse_beyond_positions(policy, max(map(len, prompts_token_ids), default=0), params.max_tokens)
    completions = _generate(engine, prompts_token_ids, params, seed)
    generated = time.perf_counter()
    answers = [(prompt, c.text) for prompt, group in zip(prompts, completions, strict=True) for c in group]
    verdicts = iter(grade(answers))
    groups = [
        _group(prompt.prompt_id, token_ids, group, [next(verdicts) for _ in group])
        for prompt, token_ids, group in zip(prompts, prompts_token_ids, completions, strict=True)
    ]
    return Rollout(
        groups=groups,
        generate_seconds=generated - started,
        verify_seconds=time.perf_counter() - generated,
        generated_tokens=sum(len(c.token_ids) for group in completions for c in group),
    )


def _refuse_beyond_positions(policy: Policy, longest: int, max_tokens: int) -> None:
    """Rotary embeddings go on past the last position that was trained, in nonsense and without an error."""
    positions: int | None = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    if positions is not None and longest + max_tokens > positions:
        raise ValueError(
            f"a prompt of {longest} tokens and generation.max_tokens={max_tokens} go beyond the {positions} positions "
            f"that the policy knows (max_position_embeddings); lower generation.max_tokens or max_prompt_tokens to "
            f"{positions} in all"
        )


def _generate(
    engine: Engine, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
) -> list[list[Completion]]:
    while True:
        try:
            return engine.generate(prompts_token_ids, params, seed)
        except (RuntimeError, MemoryError) as error:
            if not _is_too_much(error):
                raise
            if params.batch_size == 1:
                raise EngineFailed(f"one sequence at a time is too much for the engine: {error}") from error
            logger.warning("%d sequences at once are too many for the engine (%s)", params.batch_size, error)
        params = replace(params, batch_size=params.batch_size // 2)


def _is_too_much(error: Exception) -> bool:
    # torch has a class of its own for a GPU's memory, none for a CPU's.
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError, EngineOverloaded))
    return known or "can't allocate memory" in str(error)


def _group(
    prompt_id: str,
    prompt_token_ids: tuple[int, ...],
    completions: Sequence[Completion],
    verdicts: Sequence[Verdict],
) -> RolloutGroup:
    trajectories = tuple(
        Trajectory(
            prompt_id=prompt_id,
            sample_index=index,
            prompt_token_ids=prompt_token_ids,
            completion_token_ids=completion.token_ids,
            behaviour_logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            text=completion.text,
            reward=verdict.reward,
            correct=verdict.correct,
            verifier_status=verdict.status,
        )
        for index, (completion, verdict) in enumerate(zip(completions, verdicts, strict=True))
    )
    return RolloutGroup(prompt_id, trajectories)
