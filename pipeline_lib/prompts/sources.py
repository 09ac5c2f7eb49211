"""Sources of prompts: how each type is read, what it is called, and what its content is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from pipeline_lib.config import ChainSource, FileSource, PromptSource, ReasoningGymSource
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.prompts.files import read_file
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.records import Prompt


def read_source(source: PromptSource) -> Iterator[tuple[int, Prompt | BadRow]]:
    match source:
        case ChainSource():
            return read_chains(source)
        case FileSource():
            return read_file(source)
        case ReasoningGymSource():
            # Importing reasoning-gym takes seconds.
            from pipeline_lib.prompts.reasoning_gym import read_reasoning_gym

            return read_reasoning_gym(source)


def source_name(source: PromptSource) -> str:
    return Path(source.path).name if isinstance(source, FileSource) else source.type


def source_identity(source: PromptSource) -> str:
    """16 hex digits that change when the prompts may: a file's name, bytes and options; a generator's config.

    Where a file lies is not part of it; its name is, since it names the data source of rows that name none.
    """
    identity = source.model_dump(mode="json")
    if isinstance(source, FileSource):
        path = Path(source.path)
        if not path.is_file():
            raise ValueError(f"{path}: no such file; paths are relative to the config file")
        with path.open("rb") as file:
            identity |= {"path": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    if isinstance(source, ReasoningGymSource):
        identity["version"] = version("reasoning-gym")
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
