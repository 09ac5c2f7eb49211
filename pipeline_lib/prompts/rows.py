"""What file formats have in common: from one row's values to the draft of a prompt, or the reason why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.records import Message, Prompt

Row = dict[str, Any]

SOURCE_COLUMNS = ("data_source", "dataset", "datasource", "source")


class BadRow(Exception):
    """A row that gives no prompt: `reason` is one of REMEDIES, `detail` names the value and the rule."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Draft:
    """A prompt as its format gives it, before the options of its source."""

    data_source: str
    messages: tuple[Message, ...]
    gold: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    verifier: str | None = "math"
    """None where the format says that the answer is for something we have no verifier for."""


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    wants: str
    """The columns it needs, for a person."""
    matches: Callable[[Collection[str]], bool]
    draft: Callable[[Row, str], Draft]
    """From a row and the file's stem; raises BadRow."""
    fits: Callable[[Sequence[Row]], bool] = lambda head: True
    """Whether the first rows are of this format, where two formats have the same columns."""
    unmistakable: bool = False
    """Whether its columns leave no doubt, whatever other columns stand beside them."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that is ready to be read."""

    read_as: str
    """Its format, for a person."""
    prompts: Iterator[tuple[int, Prompt | BadRow]]
    """Each row's index with its prompt, or with the reason why it has none. `limit` is ingest's affair."""


def messages_of(value: Any) -> tuple[Message, ...]:
    """Messages from a list of {role, content}, or from one text, the user's. All turns are kept."""
    if isinstance(value, str):
        if not value or value.isspace():
            raise BadRow("no_prompt", f"the prompt must not be empty, found {short(value)}")
        return ({"role": "user", "content": utf8(value)},)
    if isinstance(value, dict):
        value = _transposed(value)
    if not isinstance(value, list | tuple) or not value:
        raise BadRow("no_prompt", f"the prompt must be text or a list of messages, found {short(value)}")
    messages = tuple(_message(entry) for entry in value)
    if not any(message["role"] == "user" for message in messages):
        raise BadRow("no_prompt", f"no message has the role user, found {short([m['role'] for m in messages])}")
    return messages


def gold_of(value: Any) -> str:
    """The gold answer from text or a number."""
    missing = isinstance(value, float) and not math.isfinite(value)  # as pandas writes it
    if isinstance(value, int | float) and not isinstance(value, bool) and not missing:
        value = str(value)
    gold = value.strip() if isinstance(value, str) else ""
    if not gold:
        raise BadRow("no_gold", f"the gold answer must be text or a number, not empty, found {short(value)}")
    return utf8(gold)


def source_of(row: Row, stem: str) -> str:
    """The data source that a row names, else the file's stem."""
    for name in SOURCE_COLUMNS:
        value = row.get(name)
        if isinstance(value, str) and value:
            return utf8(value)
    return stem


def json_safe(value: Any) -> Any:
    """`value` in JSON's types: NaN and infinities become None, other objects their text."""
    if isinstance(value, Mapping):
        return {json_safe(str(key)): json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value).encode(errors="replace").decode()


def utf8(text: str) -> str:
    """`text`, unless it holds a lone surrogate, which no file or database can take."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRow("not_utf8", f"lone surrogate at character {error.start} of {short(text)}") from None
    return text


def short(value: Any) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _message(value: Any) -> Message:
    if not isinstance(value, dict):
        raise BadRow("no_prompt", f"a message must be an object with role and content, found {short(value)}")
    role, content = value.get("role"), value.get("content")
    if not isinstance(role, str) or not role:
        raise BadRow("no_prompt", f"a message's role must be text, found {short(role)}")
    if not isinstance(content, str) or not content or content.isspace():
        raise BadRow("no_prompt", f"a message's content must be text, not empty, found {short(content)}")
    return {"role": utf8(role), "content": utf8(content)}


def _transposed(value: Row) -> list[Row]:
    """Older `datasets` store a list of messages as one struct of two lists."""
    roles, contents = value.get("role"), value.get("content")
    if not isinstance(roles, list) or not isinstance(contents, list) or len(roles) != len(contents):
        raise BadRow("no_prompt", f"role and content must be lists of one length, found {short(value)}")
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
