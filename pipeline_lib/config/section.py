"""What every part of a config has in common."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfigError(ValueError):
    """A config that cannot be run. The message names file, key, value and rule."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def default_type(cls, given: Any) -> Any:
        """`loss: {clip_high: 0.3}` is of the default loss: a section may leave out the `type` that it would have."""
        if not isinstance(given, dict):
            return given
        return {name: _with_default_type(cls.model_fields.get(name), value) for name, value in given.items()}


def _with_default_type(field: FieldInfo | None, value: Any) -> Any:
    default = None if field is None else field.get_default(call_default_factory=False)
    fields = type(default).model_fields if isinstance(default, Section) else {}
    if "type" not in fields or not isinstance(value, dict) or "type" in value or not fields.keys() >= value.keys():
        return value
    return {"type": fields["type"].default, **value}


def config_hash(section: BaseModel) -> str:
    """16 hex digits that change when any value does but `root`: a run that was moved or imported is still the same."""
    values = section.model_dump(mode="json", exclude={"root"})
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
