"""Messages between processes: a length, then JSON; and values of plain data, which keep their Python types."""

from __future__ import annotations

import json
import os
from typing import Any

MAX_MESSAGE = 64 * 2**20

CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def send(fd: int, message: Any) -> None:
    data = json.dumps(message).encode()
    data = len(data).to_bytes(8, "big") + data
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
    """The next message; EOFError when the other side is gone. Reads no byte beyond it."""
    size = int.from_bytes(_read(fd, 8), "big")
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes is over the limit of {MAX_MESSAGE}")
    return json.loads(_read(fd, size))


def encode(value: Any) -> Any:
    """JSON for None, numbers, text, bytes and containers of them; TypeError for anything else.

    Instances of subclasses become their base class: what they override stays behind.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.decode("latin-1")]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(entry)] for key, entry in dict.items(value)]]
    for name, kind in CONTAINERS.items():
        if isinstance(value, kind):
            return [name, [encode(entry) for entry in value]]
    raise TypeError(f"only plain data can leave the program, found {type(value).__name__}")


def decode(value: Any) -> Any:
    """The value that `encode` was given. Raises on what is not its work."""
    if not isinstance(value, list):
        return value
    kind, *content = value
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return content[0].encode("latin-1")
    if kind == "dict":
        return {decode(key): decode(entry) for key, entry in content[0]}
    return CONTAINERS[kind](decode(entry) for entry in content[0])


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(fd, min(size - len(data), 2**20))
        if not chunk:
            raise EOFError("the other side is gone")
        data += chunk
    return data
