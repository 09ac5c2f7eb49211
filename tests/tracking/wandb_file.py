"""Reads the file of a run that wandb keeps offline: records of protobuf in LevelDB's log format.

A header of 7 bytes, then blocks of 32 KiB; each chunk has a checksum (4 bytes), a length (2), a type (1: whole,
2: first, 3: middle, 4: last) and its data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32 * 1024
HEADER = 7


def records(path: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    content = path.read_bytes()
    at, data = HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:  # the rest of a block that no chunk fits into
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + HEADER])
        data += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(data)
            yield record
            data = b""
