"""Attention of one new token a row, with no copy of the keys for each of the query heads that share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_shared_heads"


def attention(
    module: torch.nn.Module,
    query_BHQD: torch.Tensor,
    key_BKSD: torch.Tensor,
    value_BKSD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """[B, Q, H, D]: transformers' own `sdpa`, but for one query a row and query heads that share key heads.

    Those heads then stand where a longer input's queries would, for they see the same keys under the same mask.
    """
    B, H, Q, D = query_BHQD.shape
    K = key_BKSD.shape[1]
    if Q != 1 or H == K or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(
            module, query_BHQD, key_BKSD, value_BKSD, attention_mask, scaling=scaling, **kwargs
        )
    query_BKGD = query_BHQD.reshape(B, K, H // K, D)
    seen_BKGD = scaled_dot_product_attention(query_BKGD, key_BKSD, value_BKSD, attn_mask=attention_mask, scale=scaling)
    return seen_BKGD.reshape(B, 1, H, -1), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def shared_heads(model: PreTrainedModel) -> Iterator[None]:
    """A model that attends by `sdpa` does so by this module's `attention` meanwhile."""
    before = model.config._attn_implementation
    if before == "sdpa" and model._supports_attention_backend:
        model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
