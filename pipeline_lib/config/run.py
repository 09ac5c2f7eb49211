"""A whole run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline_lib.config.influence import Diagnosis, ExactInfluence, Influence, RelevanceSelection, Selection
from pipeline_lib.config.policy import BuiltinPolicy, PolicySource
from pipeline_lib.config.prompts import Prompts
from pipeline_lib.config.rollouts import Evaluation, Generation, Offline
from pipeline_lib.config.runners import LocalRunner, TaskRunner
from pipeline_lib.config.section import Name, Section
from pipeline_lib.config.tracking import Tracker
from pipeline_lib.config.training import Train


class RunConfig(Section):
    """A whole curriculum."""

    name: Name
    """The run's id in the warehouse."""
    # In a config file it may be relative to that file; a run's form has no place of its own.
    root: str = Field(json_schema_extra={"pattern": "^/"})
    """Directory of the warehouse, the lake, policies and checkpoints. Runs may share one. In a form: absolute."""
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
    selection: Selection = RelevanceSelection()
    diagnosis: Diagnosis = Diagnosis()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    tracking: list[Tracker] = Field(default_factory=list)
    """Where the metrics go beside the warehouse. No part of any step's fingerprint."""
    task_runner: TaskRunner = LocalRunner()
    """Who works on the shards of rollouts and scores. No part of any step's fingerprint."""

    @model_validator(mode="after")
    def cascade_leaves_prompts_out(self) -> RunConfig:
        cascade = self.influence.cascade if isinstance(self.influence, ExactInfluence) else None
        scores = self.selection.type == "influence"
        if scores and cascade is not None and cascade.keep * self.selection.alpha >= 1:
            raise ValueError(
                f"influence.cascade.keep={cascade.keep} times selection.alpha={self.selection.alpha} is the whole "
                "pool, which would be scored twice; lower keep, or leave the cascade out"
            )
        return self

    @model_validator(mode="after")
    def influence_is_selected_by(self) -> RunConfig:
        if "influence" in self.model_fields_set and "selection" not in self.model_fields_set:
            raise ValueError(
                "influence is set and selection is not, which by default goes by relevance and measures no influence; "
                "add selection: {type: influence}, or leave influence out"
            )
        return self

    @model_validator(mode="after")
    def ranks_by_what_is_rolled_out(self) -> RunConfig:
        if self.offline.prompts is not None and self.selection.type in ("influence", "learnability", "pass_rate"):
            raise ValueError(
                f"offline.prompts={self.offline.prompts}: selection.type={self.selection.type} ranks prompts by their "
                "rollouts, so the whole pool needs them; leave offline.prompts out, or select by relevance"
            )
        return self

    @model_validator(mode="after")
    def one_engine_a_machine(self) -> RunConfig:
        if self.generation.engine.type == "vllm" and self.train.backend.processes > 1:
            raise ValueError(
                f"generation.engine=vllm with train.backend.processes={self.train.backend.processes}: each process "
                "would start an engine of its own on the same GPUs; run a server (engine: vllm_server), or train in one"
            )
        return self

    @property
    def scoring_tokens(self) -> int:
        """Padded tokens of one forward pass that scores."""
        return self.influence.tokens_per_micro_batch or self.train.tokens_per_micro_batch
