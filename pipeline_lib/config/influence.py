"""How prompts are scored and selected."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Probability, Section


class InfluenceBase(Section):
    tokens_per_micro_batch: int | None = Field(default=None, gt=0)
    """Padded tokens of one forward pass; None is train.tokens_per_micro_batch."""
    workers: int | None = Field(default=None, gt=0)
    """Processes that score shards of the pool, one a device; None is one a GPU, or this process alone on a CPU."""
    max_kl: float = Field(default=0.1, gt=0)
    """Mean KL a token (nats) of the behaviour policy from the policy, above which a prompt's rollouts are stale."""
    min_ess: float = Field(default=0.5, ge=0, le=1)
    """Effective share of a prompt's tokens, below which its rollouts are stale."""
    on_stale: Literal["warn", "recollect"] = "warn"
    """Whether stale prompts are only counted and warned of, or rolled out again before they are scored."""
    split_half_prompts: int = Field(default=64, ge=0)
    """Prompts scored once more by either half of their trajectories, to tell how stable the ranking is."""


class Cascade(Section):
    """A cheap score of the whole pool decides which prompts get the exact one."""

    blocks: int = Field(gt=0)
    """L', the last transformer blocks: the cheap score takes the gradients of these alone."""
    trajectories: int = Field(ge=2)
    """Trajectories of each prompt that the cheap score looks at."""
    keep: float = Field(default=4.0, gt=1)
    """c: c·α of the pool are scored exactly."""


class ExactInfluence(InfluenceBase):
    type: Literal["exact"] = "exact"
    geometry: Literal["euclidean", "adam"] = "euclidean"
    """In which gradients are compared: as they are, as published, or as an Adam-like optimizer scales them."""
    gradient_checkpointing: bool = False
    """Trade a second forward pass for the memory of the activations."""
    per_token: bool = False
    """Also write each token's directional derivatives along the validation gradients to the lake."""
    cascade: Cascade | None = None


class ProjectedInfluence(InfluenceBase):
    type: Literal["projected"] = "projected"
    keep_ratio: float = Field(default=0.1, gt=0, le=1)
    """r_s, the share of coordinates that the random mask keeps."""
    dimension: int = Field(default=4096, gt=0)
    """k of the Johnson-Lindenstrauss projection."""
    kind: Literal["gaussian", "sparse", "orthogonal"] = "gaussian"
    """Of the projection: dense Gaussian, sparse (SJLT), or with orthogonal rows (subsampled Hadamard)."""
    nonzeros: int = Field(default=8, gt=0)
    """Non-zero entries a coordinate has in the sparse projection."""
    check_prompts: int = Field(default=16, ge=0)
    """Prompts whose gradients tell how far the projection distorts lengths and inner products; 0 is no check."""
    seed: int = 0

    @model_validator(mode="after")
    def room_for_nonzeros(self) -> ProjectedInfluence:
        if self.kind == "sparse" and self.nonzeros > self.dimension:
            raise ValueError(
                f"nonzeros={self.nonzeros}: a coordinate's entries stand in distinct dimensions, of which there are "
                f"{self.dimension}; lower nonzeros or raise dimension"
            )
        return self


Influence = Annotated[ExactInfluence | ProjectedInfluence, Field(discriminator="type")]


class SelectionBase(Section):
    alpha: float = Field(default=0.1, gt=0, le=1)
    """Share of the pool that is trained on in a stage."""


class InfluenceSelection(SelectionBase):
    """Top α by influence on the validation sets, fused by reciprocal rank."""

    type: Literal["influence"] = "influence"
    rrf_k: float = Field(default=0.0, ge=0)
    """Constant of reciprocal rank fusion, 1 / (rrf_k + rank); 0 as published."""
    truncate: bool = False
    """Whether only ranks up to the number kept count, as published; else every rank does."""


class RelevanceSelection(SelectionBase):
    """Top α by likeness to the prompts of the validation sets, in the policy's states, times the pass rate's expected
    rise, for each token of a completion; fused by reciprocal rank. What prompts would show that were not rolled out is
    told from those that were."""

    type: Literal["relevance"] = "relevance"
    alpha: float = Field(default=0.3, gt=0, le=1)
    """Share of the pool that is trained on in a stage."""
    horizon: float = Field(default=1.0, gt=0)
    """Log-odds that a stage is expected to add to a pass rate: near 0 half-solved prompts gain most, at 1 those that
    are solved three times in eight, at 2 one in four, beyond it ever harder ones."""
    per_token: bool = True
    """Whether a prompt's gain is counted for each token of its completions, hence short ones first, or for each
    completion: more learned in as many steps, and at a higher price."""
    rrf_k: float = Field(default=0.0, ge=0)
    """Constant of reciprocal rank fusion, 1 / (rrf_k + rank)."""


class LearnabilitySelection(SelectionBase):
    """Top α by p(1-p) of the latest pass rate."""

    type: Literal["learnability"] = "learnability"


class PassRateSelection(SelectionBase):
    """The α whose latest pass rate is nearest to `target`."""

    type: Literal["pass_rate"] = "pass_rate"
    target: Probability = 0.5


class RandomSelection(SelectionBase):
    """α drawn at random, anew in each stage: the control of equal size."""

    type: Literal["random"] = "random"


class AllSelection(Section):
    """The whole pool."""

    type: Literal["all"] = "all"
    alpha: float = Field(default=1.0, ge=1, le=1)


Selection = Annotated[
    InfluenceSelection
    | RelevanceSelection
    | LearnabilitySelection
    | PassRateSelection
    | RandomSelection
    | AllSelection,
    Field(discriminator="type"),
]


class Diagnosis(Section):
    """What is found out about a selection beside its scores."""

    embedding_model: str | None = Field(default=None, min_length=1)
    """A sentence-transformers model, a directory (absolute, or relative to the config file) or a hub id: how near
    the selected prompts are to each validation set in text. Needs the extra `embeddings`; None leaves it out."""
