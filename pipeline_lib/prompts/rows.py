"""What file formats have in common: from one row's values to the draft of a prompt, or the reason why not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pipeline_lib.records import Message, Prompt

Row = dict[str, Any]

SOURCE_COLUMNS = ("data_source", "dataset", "datasource", "source")
ROLES = ("system", "developer", "user", "assistant")

_PYTHONS_MESSAGES = re.compile(r"\s*\[\s*\{\s*'(role|content)'\s*:")


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
    gold: Any
    """As the row has it."""
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
    """Messages from a list of {role, content}, from such a list as JSON text, or from a text, the user's.

    The assistant's turn after the last one of the user is an answer: it is left out, with all that follows.
    """
    if isinstance(value, str):
        if not value or value.isspace():
            raise BadRow("no_prompt", f"the prompt must not be empty, found {short(value)}")
        turns = conversation_in(value)
        if turns is None:
            return ({"role": "user", "content": utf8(value)},)
        value = turns
    if isinstance(value, dict):
        value = _transposed(value)
    if not isinstance(value, list | tuple) or not value:
        raise BadRow("no_prompt", f"the prompt must be text or a list of messages, found {short(value)}")
    for entry in value:
        if not isinstance(entry, dict):
            raise BadRow("no_prompt", f"a message must be an object with role and content, found {short(entry)}")
    return tuple(_message(entry) for entry in value[: _end_of_question([entry.get("role") for entry in value])])


def conversation_in(text: str) -> list[Any] | None:
    """The list of messages that a text holds as JSON; None for a text that is none."""
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and found and all(isinstance(entry, dict) and "role" in entry for entry in found):
        return found
    if _PYTHONS_MESSAGES.match(text):
        raise BadRow(
            "no_prompt", f"messages must be a list, or one as JSON, which Python's str() is not: {short(text)}"
        )
    return None


def gold_of(value: Any) -> str:
    """The gold answer from text or a number, or from a list of one."""
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    missing = isinstance(value, float) and not math.isfinite(value)  # as pandas writes it
    # True may mean True, true or yes.
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and not missing:
        value = _plain_number(value)
    gold = value.strip() if isinstance(value, str) else ""
    if not gold:
        raise BadRow("no_gold", f"the gold answer must be text or a number, not empty, found {short(value)}")
    return utf8(gold)


def first_filled(row: Row, names: Sequence[str]) -> Any:
    """The first of the values that is not blank; where all are, the first, or None."""
    values = [row[name] for name in names if name in row]
    return next((value for value in values if not blank(value)), values[0] if values else None)


def blank(value: Any) -> bool:
    """Whether it is missing, empty, or nothing but white space."""
    missing = isinstance(value, float) and math.isnan(value)
    return value is None or missing or value == [] or (isinstance(value, str) and not value.strip())


def object_in(value: Any) -> Row | None:
    """An object, or the one that a text holds as JSON; None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def source_of(row: Row, stem: str) -> str:
    """The data source that a row names, else the file's stem."""
    for name in SOURCE_COLUMNS:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
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


def _end_of_question(roles: Sequence[Any]) -> int:
    if "user" not in roles:
        raise BadRow("no_prompt", f"no message has the role user, found {short(roles)}")
    last = max(i for i, role in enumerate(roles) if role == "user")
    return next((i for i in range(last, len(roles)) if roles[i] == "assistant"), len(roles))


def _message(value: Row) -> Message:
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise BadRow("no_prompt", f"a message's role must be one of {', '.join(ROLES)}, found {short(role)}")
    if value.get("tool_calls") or value.get("function_call"):
        raise BadRow("no_prompt", f"a message must be role and content alone, without tool calls, found {short(value)}")
    if isinstance(content, list):
        content = "".join(_text_of_part(part) for part in content)
    if not isinstance(content, str) or not content or content.isspace():
        raise BadRow("no_prompt", f"a message's content must be text, not empty, found {short(content)}")
    return {"role": role, "content": utf8(content)}


def _text_of_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise BadRow("no_prompt", f"each part of a message's content must be of type text, found {short(part)}")
    return text


def _plain_number(value: int | float | Decimal) -> str:
    """18 for 18.0 and 18.00: a column of whole numbers with gaps is one of floats."""
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else str(value)


def _transposed(value: Row) -> list[Row]:
    """Older `datasets` store a list of messages as one struct of two lists."""
    roles, contents = value.get("role"), value.get("content")
    if not isinstance(roles, list) or not isinstance(contents, list) or len(roles) != len(contents):
        raise BadRow("no_prompt", f"role and content must be lists of one length, found {short(value)}")
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
