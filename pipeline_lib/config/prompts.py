"""Where prompts come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Name, Section

ChainKind = Literal["plus", "minus", "mixed", "times", "max"]
DataFormat = Literal[
    "auto", "verl", "trl", "openrlhf", "open_instruct", "math", "gsm8k", "question_answer", "human_eval"
]


class ChainSource(Section):
    """Generated left-to-right chains modulo 10, the language of the built-in policy."""

    type: Literal["chains"] = "chains"
    kinds: list[ChainKind] = Field(min_length=1)
    lengths: list[Annotated[int, Field(ge=1, le=6)]] = Field(min_length=1)
    """Numbers of operations; every kind × length gets an equal share of `count`."""
    count: int = Field(gt=0)
    seed: int = 0


class Columns(Section):
    """Which column is what, for a data set of no known format. Dots lead into nested values: `reward.answers.0`."""

    prompt: str = Field(min_length=1)
    """Text, or a list of messages with role and content."""
    gold: str = Field(min_length=1)
    source: str | None = Field(default=None, min_length=1)
    """Names the data source, which is part of a prompt's identity; where it is empty the file's name does."""


class RowSource(Section):
    """What all data sets of rows and columns have in common."""

    path: str
    format: DataFormat = "auto"
    """auto finds it by the columns."""
    columns: Columns | None = None
    """Given in place of `format`."""
    verifier: Literal["auto", "math", "numeric", "exact", "multiple_choice", "code"] = "auto"
    suffix: str = ""
    """Appended to the last user message, e.g. how to mark the final answer. Part of the prompt's identity."""
    limit: int | None = Field(default=None, gt=0)
    """Keep this many prompts, drawn by `seed`; None keeps all."""
    seed: int = 0

    @model_validator(mode="after")
    def format_or_columns(self) -> RowSource:
        if self.columns is not None and self.format != "auto":
            raise ValueError("give either `format` or `columns`: columns say how to read a data set of no known format")
        return self


class FileSource(RowSource):
    """A data set on disk: .jsonl, .json, .csv (each of them also with .gz) or .parquet."""

    type: Literal["file"] = "file"


class DatasetSource(RowSource):
    """A data set that the package `datasets` reads.

    `path` is a directory, as save_to_disk writes it or with data files in it, or an id of the hub such as openai/gsm8k.
    """

    type: Literal["dataset"] = "dataset"
    name: str | None = None
    """Of the data set's configuration, such as main."""
    split: str = "train"
    revision: str | None = None
    """A commit or tag. The hub needs one: without it the same config could mean other rows tomorrow."""


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


PromptSource = Annotated[ChainSource | FileSource | DatasetSource | ReasoningGymSource, Field(discriminator="type")]
Sources = Annotated[list[PromptSource], Field(min_length=1)]


class Prompts(Section):
    train: Sources
    validation: dict[Name, Sources] = Field(min_length=1)
    """Sets that influence is measured on. Never trained on."""
    evaluation: dict[Name, Sources] = Field(min_length=1)
    """Held-out sets whose pass rate is reported before and after each stage."""
    contamination: Literal["drop", "report"] = "drop"
    """What becomes of a prompt of `train` whose question also stands in one of these sets. It is counted either way."""
