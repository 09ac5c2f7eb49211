"""Rows of a data set that the package `datasets` reads: saved by it, a directory of data files, or one of the hub."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_lib.config import DatasetSource
from pipeline_lib.prompts.readers import BATCH, Rows, batch_rows


def read_dataset(source: DatasetSource) -> Rows:
    """Index is the row's. A directory is read where it lies; what comes from the hub stays in the package's cache.

    Raises ValueError where the package is missing, or does not find or cannot read the data set or its split.
    """
    check_source(source)
    index = 0
    try:
        for table in _open(source).with_format("arrow").iter(batch_size=BATCH):
            for batch in pa.table(table).to_batches():
                for row in batch_rows(batch):
                    yield index, row
                    index += 1
    except (pa.ArrowException, OSError, RuntimeError) as error:
        raise ValueError(f"{source.path}: not readable by `datasets` at row {index}: {error}") from error


def check_source(source: DatasetSource) -> None:
    """ValueError for what shows without reading: the package is missing, or a data set of the hub is not pinned."""
    if find_spec("datasets") is None:
        raise ValueError(
            f"{source.path}: to read it needs the package datasets, which is not installed: "
            'pip install -e ".[datasets]"; or give a .jsonl, .csv or .parquet file'
        )
    if not Path(source.path).is_dir() and source.revision is None:
        raise ValueError(
            f"{source.path}: no such directory; a data set of the hub needs a `revision`, a commit or tag of its "
            "repository, so that the same config always means the same rows"
        )


def _open(source: DatasetSource) -> Any:
    import datasets

    directory = Path(source.path)
    if any((directory / name).is_file() for name in ("state.json", "dataset_dict.json")):
        loaded = datasets.load_from_disk(source.path)
        if not isinstance(loaded, dict):
            return loaded
        if source.split not in loaded:
            raise ValueError(f"{source.path}: no split is named {source.split!r}; there are {', '.join(loaded)}")
        return loaded[source.split]
    # Streamed, a directory is not copied into the cache first.
    return datasets.load_dataset(
        source.path, source.name, split=source.split, revision=source.revision, streaming=directory.is_dir()
    )
