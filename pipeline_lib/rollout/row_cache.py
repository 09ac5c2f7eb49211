"""Keys and values of rows that are decoded together: a step copies none of them; rows leave, join and repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

ROOM = 32
"""Columns made at once for tokens to come, so that the rest is copied once in so many steps."""


class RoomyLayer(DynamicLayer):
    """`keys` and `values`, each [B, H, S, D], are the front of tensors with room for more columns."""

    def hold(self, keys: torch.Tensor, values: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Take tensors whose first `width` columns are filled, and give those columns."""
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.roomy = keys, values
        filled = keys[:, :, :width], values[:, :, :width]
        self.keys, self.values = filled
        return filled

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            return self.hold(key_states, value_states, key_states.shape[-2])
        filled, width = self.get_seq_length(), self.get_seq_length() + key_states.shape[-2]
        keys, values = self.roomy
        if width > keys.shape[-2]:
            every_row = torch.arange(len(keys), device=keys.device)
            keys, values = (beside([(states[:, :, :filled], every_row)], filled) for states in self.roomy)
        keys[:, :, filled:width] = key_states
        values[:, :, filled:width] = value_states
        return self.hold(keys, values, width)


class RowCache(Cache):
    """Holds every column of every row, so a model with a sliding window is as exact in it as any."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=RoomyLayer)


def rows_beside(parts: Sequence[tuple[RowCache, torch.Tensor]], width: int) -> RowCache:
    """The named rows of each cache, one cache's below another's, in `width` columns that end where theirs end.

    Rows that are not named leave, rows named n times are there n times. The parts are taken apart layer by layer, so
    that no more than one layer is there twice.
    """
    whole = RowCache()
    while parts[0][0].layers:
        layers = [(cache.layers.pop(0), rows) for cache, rows in parts]
        layer = RoomyLayer()
        keys, values = (
            beside([(getattr(one, name), rows) for one, rows in layers], width) for name in ("keys", "values")
        )
        layer.hold(keys, values, width)
        whole.layers.append(layer)
    return whole


def beside(parts: Sequence[tuple[torch.Tensor, torch.Tensor]], width: int) -> torch.Tensor:
    """[B, H, width + ROOM, D] of the named rows of [b, H, s, D] tensors, aligned at column `width`, zeros before."""
    first, _ = parts[0]
    whole = first.new_empty(sum(len(rows) for _, rows in parts), first.shape[1], width + ROOM, first.shape[3])
    top = 0
    for states, rows in parts:
        columns = min(width, states.shape[2])
        whole[top : top + len(rows), :, : width - columns] = 0  # padding is masked, but NaN would come through a mask
        whole[top : top + len(rows), :, width - columns : width] = states[:, :, states.shape[2] - columns :][rows]
        top += len(rows)
    return whole
