"""What every part of a config has in common."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfigError(ValueError):
    """A config that cannot be run. The message names file, key, value and rule."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def config_hash(section: BaseModel) -> str:
    """16 hex digits that change when any value does."""
    return hashlib.sha256(json.dumps(section.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()[:16]
