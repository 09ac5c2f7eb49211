"""Which prompts are rolled out while training: samplers, their controllers and priors, refills."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Probability, Section


class FixedStep(Section):
    """GRESO's controller: the same step up or down, whichever brings the share nearer to its target."""

    type: Literal["fixed_step"] = "fixed_step"
    step: float = Field(default=0.01, gt=0)
    """Δ by which the steered value moves once a training step."""


class Pid(Section):
    """Proportional, integral and derivative; gains are in ranges of the steered value a unit of the share."""

    type: Literal["pid"] = "pid"
    kp: float = Field(default=0.3, ge=0)
    ki: float = Field(default=0.05, ge=0)
    kd: float = Field(default=0.0, ge=0)
    smoothing: float = Field(default=0.3, gt=0, le=1)
    """Weight of the newest step in the moving average of the share."""


Controller = Annotated[FixedStep | Pid, Field(discriminator="type")]


class Ramp(Section):
    """From `start` to `end` in a straight line, then `end`."""

    start: float = Field(ge=0)
    end: float = Field(ge=0)
    over: int = Field(gt=0)


class NoPrior(Section):
    """Every prompt without a history starts alike."""

    type: Literal["none"] = "none"


class PriorBase(Section):
    refit_every: int = Field(default=10, gt=0)
    """Training steps after which the prior is fitted to the newest outcomes anew."""
    window: int = Field(default=4096, gt=0)
    """Newest rollout groups that it is fitted to."""
    max_concentration: float = Field(default=16.0, gt=0)
    """Most completions' worth of evidence that a prior may be; how much it is, is estimated."""
    embedding_model: str | None = Field(default=None, min_length=1)
    """A sentence-transformers model that tells which prompts are alike, a directory (absolute, or relative to the
    config file) or a hub id. Needs the extra `embeddings`; None compares hashed n-grams."""


class PredictorPrior(PriorBase):
    """A pass rate predicted from the prompt's text. Needs the extra `difficulty`."""

    type: Literal["predictor"] = "predictor"
    warm_start: str | None = None
    """prior.jsonl of another task's stage, whose outcomes come before the first of this one."""


class ClusterPrior(PriorBase):
    """One prior for all prompts of a cluster of texts. Needs the extra `difficulty`."""

    type: Literal["clusters"] = "clusters"
    clusters: int = Field(default=32, gt=0)
    """k of k-means, or as many as there are distinct texts."""
    shrinkage: float = Field(default=16.0, gt=0)
    """Completions' worth of the pool's pass rate in a cluster's own."""


Prior = Annotated[NoPrior | PredictorPrior | ClusterPrior, Field(discriminator="type")]


class DriftDetector(Section):
    """A CUSUM of observed minus expected correct completions; an alarm makes the posterior forget faster."""

    allowance: float = Field(default=0.5, ge=0)
    """k, in standard deviations a step: how far off the expectation counts as none."""
    threshold: float = Field(default=5.0, gt=0)
    """h, in standard deviations: with k = 0.5, h = 5 there is a false alarm in 465 steps."""
    discount: float = Field(default=0.3, ge=0, le=1)
    """The discount in force after an alarm, unless the sampler's own is smaller still."""
    hold_steps: int = Field(default=10, gt=0)
    """Training steps that an alarm is in force."""


class UniformSampler(Section):
    """Plain GRPO: every prompt once an epoch, nothing skipped, nothing refilled."""

    type: Literal["uniform"] = "uniform"


class DynamicSampler(Section):
    """DAPO's dynamic sampling: nothing is skipped, zero-variance groups are dropped after their rollout."""

    type: Literal["dynamic"] = "dynamic"


class GresoSampler(Section):
    """Skips a prompt before its rollout when its trailing zero-variance run predicts another one."""

    type: Literal["greso"] = "greso"
    initial_p: Probability = 0.5
    """p_right and p_wrong at the start; keep = max(exploration, p^z)."""
    p_min: float = Field(default=0.05, gt=0, lt=1)
    p_max: float = Field(default=0.95, gt=0, lt=1)
    controller: Controller = FixedStep()
    """Moves p_right and p_wrong once a training step, from the second epoch on."""
    target_right: Probability = 1 / 12
    """Wanted share of all_right groups among the rolled-out prompts."""
    target_wrong: Probability = 1 / 6
    exploration: float = Field(default=0.01, gt=0, le=1)
    """ε, the least keep probability: every prompt comes back some day."""

    @model_validator(mode="after")
    def p_has_a_range(self) -> GresoSampler:
        _in_order("p_min", self.p_min, "p_max", self.p_max)
        return self


class PosteriorSampler(Section):
    """Keeps a prompt by the chance that its group is mixed, under a Beta posterior of its pass rate that fades."""

    type: Literal["posterior"] = "posterior"
    prior_right: float = Field(default=1.0, gt=0)
    """a0 and b0 of Beta(a0, b0), what is believed of a prompt without history."""
    prior_wrong: float = Field(default=1.0, gt=0)
    discount: float = Field(default=0.7, ge=0, le=1)
    """λ: what is left of earlier groups' counts when another group of the prompt comes."""
    half_life: float = Field(default=100.0, gt=0)
    """Training steps after which half of a prompt's counts is left when no group of it comes."""
    sharpness: float = Field(default=1.0, gt=0)
    """γ at the start; keep = max(exploration, (V / V_max)^γ)."""
    sharpness_min: float = Field(default=0.1, gt=0)
    sharpness_max: float = Field(default=8.0, gt=0)
    controller: Controller = FixedStep(step=0.1)
    """Moves γ once a training step."""
    target_mixed: Probability = 0.75
    """Wanted share of mixed groups among the rolled-out prompts."""
    exploration: float = Field(default=0.01, gt=0, le=1)
    """ε, the least keep probability."""
    prior: Prior = NoPrior()
    """What is believed of a prompt without history in place of Beta(a0, b0)."""
    drift: DriftDetector | None = None
    """Forget faster when the policy has moved away from what the history predicts; None never does."""

    @model_validator(mode="after")
    def sharpness_has_a_range(self) -> PosteriorSampler:
        _in_order("sharpness_min", self.sharpness_min, "sharpness_max", self.sharpness_max)
        return self


class VarianceSigmoidSampler(Section):
    """Skips a prompt by a sigmoid of how far the variance within its last groups is below a threshold."""

    type: Literal["variance_sigmoid"] = "variance_sigmoid"
    sharpness: Ramp = Ramp(start=10, end=100, over=100)
    """k of the sigmoid, over training steps: the article's α, whose tenfold rise it keeps."""
    window: Ramp = Ramp(start=5, end=10, over=5)
    """Groups of a prompt that count, over epochs; rounded."""
    exploration: Ramp = Ramp(start=0.1, end=0.01, over=10)
    """pb, the least keep probability, over epochs."""
    hard_exploration: Probability = 0.05
    """pd is this times (1 - pass rate): the least keep probability of prompts that are always answered wrong."""
    threshold: float = Field(default=0.05, ge=0, le=0.25)
    """v0 at the start: a variance at which half of the prompts are skipped."""
    threshold_min: float = Field(default=0.01, ge=0, le=0.25)
    threshold_max: float = Field(default=0.15, ge=0, le=0.25)
    controller: Controller = FixedStep(step=0.002)
    """Moves v0 once a training step."""
    target_mixed: Probability = 0.75
    """Wanted share of mixed groups among the rolled-out prompts."""

    @model_validator(mode="after")
    def ranges(self) -> VarianceSigmoidSampler:
        _in_order("threshold_min", self.threshold_min, "threshold_max", self.threshold_max)
        for value in (self.exploration.start, self.exploration.end):
            if not 0 < value <= 1:
                raise ValueError(
                    f"exploration from or to {value}: it is a least keep probability, above 0 and at most 1"
                )
        for value in (self.window.start, self.window.end):
            if value < 1:
                raise ValueError(f"window from or to {value}: at least 1 group must count")
        return self


def _in_order(low_name: str, low: float, high_name: str, high: float) -> None:
    if low > high:
        raise ValueError(f"{low_name}={low} is above {high_name}={high}; lower the one or raise the other")


Sampler = Annotated[
    UniformSampler | DynamicSampler | GresoSampler | PosteriorSampler | VarianceSigmoidSampler,
    Field(discriminator="type"),
]


class Refill(Section):
    """How many prompts a generation round rolls out while the batch is short."""

    oversample: float = Field(default=1.25, ge=1)
    """β in ceil(β · missing / (1 - zero-variance share))."""
    min_prompts: int = Field(default=8, gt=0)
    max_prompts: int | None = Field(default=None, gt=0)
    """Most prompts of one round; None is 1.5 × prompts_per_step."""
    max_rounds: int = Field(default=6, gt=0)
    """A step trains on what it has after this many rounds."""
    smoothing: float = Field(default=0.5, gt=0, le=1)
    """Weight of the newest round in the moving average of the zero-variance share."""
