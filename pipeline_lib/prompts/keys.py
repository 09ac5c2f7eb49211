"""Sets of 64-bit keys at 8 bytes each: prompt ids and what else millions of rows are told apart by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


class SeenKeys:
    """Which keys have come before: sorted runs, merged when they grow alike, so that adding n keys costs n log n."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def first(self, keys: Keys) -> NDArray[np.bool_]:
        """True where a key is neither among those added nor earlier in `keys`."""
        unique, places = np.unique(keys, return_index=True)
        fresh = np.ones(len(unique), bool)
        for run in self._runs:
            fresh &= ~contains(run, unique)
        first = np.zeros(len(keys), bool)
        first[places[fresh]] = True
        return first

    def add(self, keys: Keys) -> None:
        """Add distinct keys that are not among those added."""
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def contains(ordered: Keys, keys: Keys) -> NDArray[np.bool_]:
    """Which of `keys` are among `ordered`, which is sorted."""
    if len(ordered) == 0:
        return np.zeros(len(keys), bool)
    places = np.searchsorted(ordered, keys)
    return ordered[np.minimum(places, len(ordered) - 1)] == keys


def keys_of(prompt_ids: list[str]) -> Keys:
    """The keys of prompt ids of 16 hex digits."""
    return np.frombuffer(bytes.fromhex("".join(prompt_ids)), ">u8").astype(np.uint64)


def ids_of(keys: Keys) -> pa.StringArray:
    """The prompt ids of 16 hex digits that `keys` came from."""
    offsets = np.arange(0, 16 * len(keys) + 1, 16, dtype=np.int32)
    digits = keys.astype(">u8").tobytes().hex().encode()
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(digits))
