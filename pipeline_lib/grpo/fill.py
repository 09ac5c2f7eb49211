"""Fills one step's batch: propose, roll out, keep the groups with signal, refill within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline_lib.config import Train
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import Rollout
from pipeline_lib.sampling import Decision, Observation, PromptSampler, RoundSizer

RollOut = Callable[[Sequence[str], int], Rollout]
"""(prompt ids, round) -> their rollout groups."""


@dataclass
class StepBatch:
    """`groups` are trained on now; `carried` were accepted beyond the batch and open the next one."""

    groups: list[RolloutGroup]
    carried: list[RolloutGroup] = field(default_factory=list)
    rolled_out: list[RolloutGroup] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    rounds: int = 0
    generate_seconds: float = 0.0
    verify_seconds: float = 0.0
    generated_tokens: int = 0


def fill_batch(
    sampler: PromptSampler,
    sizer: RoundSizer,
    roll_out: RollOut,
    carried: Sequence[RolloutGroup],
    config: Train,
) -> StepBatch:
    """Collect `prompts_per_step` groups, or as many as `refill.max_rounds` rounds give.

    A sampler that does not drop zero-variance groups has one round and trains on all of it. Groups that were
    carried over come first; accepted groups are never thrown away.
    """
    batch = StepBatch(groups=list(carried))
    max_rounds = config.refill.max_rounds if sampler.drops_zero_variance else 1
    while len(batch.groups) < config.prompts_per_step and batch.rounds < max_rounds:
        missing = config.prompts_per_step - len(batch.groups)
        decisions = sampler.propose(sizer.next_round(missing) if sampler.drops_zero_variance else missing)
        batch.decisions += decisions
        kept = [d.prompt_id for d in decisions if d.keep]
        if not kept:
            break
        rollout = roll_out(kept, batch.rounds)
        batch.rounds += 1
        batch.rolled_out += rollout.groups
        batch.generate_seconds += rollout.generate_seconds
        batch.verify_seconds += rollout.verify_seconds
        batch.generated_tokens += rollout.generated_tokens
        sampler.observe([Observation.of(group) for group in rollout.groups])
        with_signal = [g for g in rollout.groups if g.has_signal]
        sizer.observe(len(rollout.groups), len(with_signal))
        batch.groups += with_signal if sampler.drops_zero_variance else rollout.groups
    sampler.end_step()
    batch.carried = batch.groups[config.prompts_per_step :]
    del batch.groups[config.prompts_per_step :]
    return batch
