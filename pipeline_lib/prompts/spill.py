"""Arrow batches put aside on disk while a set is read, in a file without a name that is gone with its process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa


class Spill:
    """A list of batches of one schema, of which the memory holds the place of each and no more."""

    def __init__(self, schema: pa.Schema, directory: Path | None = None) -> None:
        """In `directory`, else where the system keeps temporary files."""
        self._schema = schema
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._places: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._places.append(self._file.seek(0, 2))
        with pa.ipc.new_stream(self._file, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for place in self._places:
            self._file.seek(place)
            with pa.ipc.open_stream(self._file) as reader:
                yield reader.read_next_batch()
