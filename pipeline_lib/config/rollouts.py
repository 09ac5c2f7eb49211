"""How completions are sampled: collected once, and for evaluations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipeline_lib.config.section import Section


class TransformersEngine(Section):
    """Decodes with transformers' model itself: the policy's own weights, on its device."""

    type: Literal["transformers"] = "transformers"


class VllmEngine(Section):
    """vLLM in the process that asks for completions, with a copy of the weights."""

    type: Literal["vllm"] = "vllm"
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that share each layer."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the policy that share the prompts."""
    memory_share: float = Field(default=0.3, gt=0, lt=1)
    """Of a GPU's memory that vLLM takes for weights and KV cache; the rest is the trainer's."""
    cpu_cache_gib: int = Field(default=1, ge=1)
    """KV cache where there is no GPU."""
    compile: bool = False
    """Captures CUDA graphs: a slower start, faster decoding."""


class VllmServer(Section):
    """A server that runs already: `vllm serve DIRECTORY --logprobs-mode processed_logprobs --generation-config vllm`.

    It must serve the policy of the run. To be given the weights of one under training it must run with
    VLLM_SERVER_DEV_MODE=1.
    """

    type: Literal["vllm_server"] = "vllm_server"
    base_url: str = Field(pattern=r"^https?://")
    """Without /v1."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """Of one request."""
    shared_directory: str | None = None
    """Where new weights are handed over; the server sees it under the same path."""
    seeded: bool = True
    """Give each request a seed. False for a server on a CPU, which ends at one."""


def _named(engine: Any) -> Any:
    return {"type": engine} if isinstance(engine, str) else engine


Engine = Annotated[TransformersEngine | VllmEngine | VllmServer, Field(discriminator="type"), BeforeValidator(_named)]


class Generation(Section):
    """How completions are sampled, everywhere in the run."""

    engine: Engine = TransformersEngine()
    """`engine: vllm` stands for `{type: vllm}`."""
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Off-policy ratios need full support, so influence and training refuse any value but 1."""
    max_tokens: int = Field(default=1024, gt=0)
    max_prompt_tokens: int = Field(default=2048, gt=0)
    """Longer prompts are left out and listed."""
    batch_size: int = Field(default=64, gt=0)
    """Sequences decoded at once."""

    def what_is_sampled(self) -> dict[str, Any]:
        """The part that a rollout depends on; where an engine finds its memory or its server is none."""
        settings = self.model_dump(mode="json", exclude={"max_prompt_tokens", "engine"})
        return settings | {"engine": self.engine.type}

    @model_validator(mode="after")
    def full_support(self) -> Generation:
        if self.top_p != 1.0:
            raise ValueError(f"top_p={self.top_p}: off-policy ratios need the full distribution, so top_p must be 1")
        return self


class Offline(Section):
    """Rollouts of the initial policy, collected once."""

    prompts: int | None = Field(default=None, gt=0)
    """How many prompts of the pool are rolled out, drawn at random; None is all. With selection.type=relevance a few
    hundred tell what the others would show."""
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
