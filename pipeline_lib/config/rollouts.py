"""How completions are sampled: collected once, and for evaluations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Section


class Generation(Section):
    """How completions are sampled, everywhere in the run."""

    engine: Literal["transformers"] = "transformers"
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Off-policy ratios need full support, so influence and training refuse any value but 1."""
    max_tokens: int = Field(default=1024, gt=0)
    max_prompt_tokens: int = Field(default=2048, gt=0)
    """Longer prompts are left out and listed."""
    batch_size: int = Field(default=64, gt=0)
    """Sequences decoded at once."""

    @model_validator(mode="after")
    def full_support(self) -> Generation:
        if self.top_p != 1.0:
            raise ValueError(f"top_p={self.top_p}: off-policy ratios need the full distribution, so top_p must be 1")
        return self


class Offline(Section):
    """Rollouts of the initial policy, collected once."""

    samples: int = Field(default=8, ge=2)
    """K, completions per training prompt."""
    validation_samples: int = Field(default=32, ge=2)
    prompts_per_shard: int = Field(default=128, gt=0)
    """A finished shard is never redone."""


class Evaluation(Section):
    samples: int = Field(default=8, ge=1)
    pass_at: list[Annotated[int, Field(ge=1)]] = Field(default=[1, 8])

    @model_validator(mode="after")
    def enough_samples(self) -> Evaluation:
        if max(self.pass_at, default=1) > self.samples:
            raise ValueError(f"pass@{max(self.pass_at)} needs samples >= {max(self.pass_at)}")
        return self
