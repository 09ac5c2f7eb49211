"""Where prompts come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_lib.config.section import Name, Section

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
    verifier: Literal["auto", "math", "numeric", "exact", "multiple_choice", "code"] = "auto"
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
