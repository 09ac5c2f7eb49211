"""Plain GRPO: every prompt once an epoch; zero-variance groups stay in the batch."""

from __future__ import annotations

from pipeline_lib.sampling.base import Judgement, PromptSampler


class Uniform(PromptSampler):
    drops_zero_variance = False

    def _decide(self, prompt_id: str) -> Judgement:
        return Judgement(1.0, "uniform")
