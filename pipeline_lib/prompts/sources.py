"""Sources of prompts: how each type is read, what it is called, and what its content is."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from pipeline_lib.config import ChainSource, DatasetSource, FileSource, PromptSource, ReasoningGymSource, RowSource
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.prompts.files import open_rows
from pipeline_lib.prompts.hugging_face import check_source
from pipeline_lib.prompts.rows import Opened


def open_source(source: PromptSource) -> Opened:
    """ValueError for a source that cannot be read, or whose columns fit no format or several."""
    match source:
        case ChainSource():
            return Opened("generated chains", read_chains(source))
        case FileSource() | DatasetSource():
            return open_rows(source)
        case ReasoningGymSource():
            # Importing reasoning-gym takes seconds.
            from pipeline_lib.prompts.reasoning_gym import read_reasoning_gym

            return Opened("entries that reasoning-gym generates", read_reasoning_gym(source))


def source_name(source: PromptSource) -> str:
    return Path(source.path).name if isinstance(source, RowSource) else source.type


def source_identity(source: PromptSource) -> str:
    """16 hex digits that change when the prompts may: a data set's name, bytes and options; a generator's config.

    Where a file lies is not part of it; its name is, since it names the data source of rows that name none.
    A data set of the hub is known by its revision.
    """
    identity = source.model_dump(mode="json")
    if isinstance(source, FileSource):
        if not Path(source.path).is_file():
            raise ValueError(f"{source.path}: no such file; paths are relative to the config file")
        identity |= {"path": Path(source.path).name, "sha256": _sha256(Path(source.path))}
    if isinstance(source, DatasetSource):
        check_source(source)
        if Path(source.path).is_dir():
            identity |= {"path": Path(source.path).name, "content": _content(Path(source.path))}
    if isinstance(source, ReasoningGymSource):
        identity["version"] = version("reasoning-gym")
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _content(directory: Path) -> list[tuple[str, str]]:
    files = sorted(path for path in directory.rglob("[!.]*") if path.is_file())
    return [(str(path.relative_to(directory)), _sha256(path)) for path in files]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
