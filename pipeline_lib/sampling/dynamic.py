"""DAPO's dynamic sampling (arXiv 2503.14476): roll out every prompt, drop zero-variance groups, refill the batch."""

from __future__ import annotations

from pipeline_lib.sampling.base import Judgement, PromptSampler


class Dynamic(PromptSampler):
    def _decide(self, prompt_id: str) -> Judgement:
        return Judgement(1.0, "dynamic")
