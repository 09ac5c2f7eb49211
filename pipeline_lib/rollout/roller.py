"""All that it takes to roll prompts out: a policy, its engine, a grader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline_lib.config import Generation
from pipeline_lib.policy import Policy, load_policy, resolve_device
from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import Engine, Rollout, SamplingParams, make_engine, roll_out


@dataclass(frozen=True)
class Roller:
    policy: Policy
    engine: Engine
    grader: Grader

    def roll_out(self, prompts: Sequence[Prompt], params: SamplingParams, seed: int) -> Rollout:
        """One graded group of `params.n` completions for each prompt, in the prompts' order."""
        return roll_out(self.policy, self.engine, self.grader.grade, prompts, params, seed)


@contextmanager
def open_roller(policy_path: Path | str, *, device: str, dtype: str, generation: Generation) -> Iterator[Roller]:
    """Load the policy; engine and grader end with the block. `device` and `dtype` as in the config."""
    policy = load_policy(policy_path, device=resolve_device(device), dtype=getattr(torch, dtype))
    with Grader() as grader, closing(make_engine(generation, policy)) as engine:
        yield Roller(policy, engine, grader)
