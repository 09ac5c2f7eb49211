"""Plain GRPO: every prompt once an epoch; zero-variance groups stay in the batch."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_lib.sampling.base import Decision, Observation, PromptSampler


class Uniform(PromptSampler):
    drops_zero_variance = False

    def _decide(self, prompt_id: str, epoch: int) -> Decision:
        return Decision(prompt_id, epoch, True, 1.0, "uniform")

    def observe(self, observations: Sequence[Observation]) -> None:
        pass
