"""One GRPO stage: loss, back end, and how long it goes on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.config.sampling import GresoSampler, Refill, Sampler
from pipeline_lib.config.section import Section


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
    """C of the truncated importance correction: the loss is weighed by min(policy / sampler, C) (gspo: of the
    completion's geometric mean) and nothing is clipped, since a batch has one update. None clips policy / sampler."""


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
    target_modules: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Names of the layers that get adapters, such as [q_proj, v_proj]; all-linear is all but the head."""


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


class Validation(Section):
    """Roll the validation sets out while training: the best checkpoint is kept beside the last ones."""

    every: int = Field(default=10, gt=0)
    """Steps between two looks; the last step has one as well."""
    samples: int = Field(default=4, ge=1)
    """Completions of each validation prompt."""
    take_best: bool = False
    """Whether the stage hands on the policy of the best checkpoint in place of the last one's."""


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
    """KL(policy ‖ the stage's starting policy), nats a token, above which the stage ends before its last step.
    It is measured on each step's groups, before the step's update."""
    max_nonfinite_steps: int = Field(default=0, ge=0)
    """Steps of a stage that may be skipped because their loss or gradient is not finite; one more ends the run."""
    backend: Backend = TorchBackend()
    sampler: Sampler = GresoSampler()
    refill: Refill = Refill()
    validation: Validation | None = None
    checkpoint_every: int = Field(default=10, gt=0)
    keep_last: int = Field(default=2, gt=0)

    @property
    def needs_reference(self) -> bool:
        """Whether the stage's starting policy is looked at while training."""
        return self.loss.kl_coefficient > 0 or self.stage_kl_limit is not None
