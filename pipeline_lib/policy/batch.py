"""Trajectories as padded tensors. Suffixes: B trajectories, S tokens, T completion tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pipeline_lib.records import Trajectory


@dataclass(frozen=True)
class TokenBatch:
    """Left-padded sequences, so that every completion ends in the last column.

    Masks come from lengths, never from token ids: pad and eos may be one id.
    """

    input_ids_BS: torch.Tensor
    attention_mask_BS: torch.Tensor
    position_ids_BS: torch.Tensor
    completion_ids_BT: torch.Tensor
    completion_mask_BT: torch.Tensor  # bool
    behaviour_logprobs_BT: torch.Tensor  # 0 where masked


def collate(trajectories: Sequence[Trajectory], pad_token_id: int, device: torch.device) -> TokenBatch:
    B = len(trajectories)
    S = max(len(t.prompt_token_ids) + len(t.completion_token_ids) for t in trajectories)
    T = max(len(t.completion_token_ids) for t in trajectories)
    input_ids_BS = torch.full((B, S), pad_token_id, dtype=torch.long)
    attention_mask_BS = torch.zeros((B, S), dtype=torch.long)
    completion_mask_BT = torch.zeros((B, T), dtype=torch.bool)
    behaviour_logprobs_BT = torch.zeros((B, T))
    for row, t in enumerate(trajectories):
        tokens = t.prompt_token_ids + t.completion_token_ids
        input_ids_BS[row, S - len(tokens) :] = torch.tensor(tokens)
        attention_mask_BS[row, S - len(tokens) :] = 1
        length = len(t.completion_token_ids)
        completion_mask_BT[row, T - length :] = True
        behaviour_logprobs_BT[row, T - length :] = torch.tensor(t.behaviour_logprobs)
    return TokenBatch(
        input_ids_BS=input_ids_BS.to(device),
        attention_mask_BS=attention_mask_BS.to(device),
        position_ids_BS=(attention_mask_BS.cumsum(-1) - 1).clamp(min=0).to(device),
        completion_ids_BT=input_ids_BS[:, S - T :].to(device),
        completion_mask_BT=completion_mask_BT.to(device),
        behaviour_logprobs_BT=behaviour_logprobs_BT.to(device),
    )


def micro_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of `lengths`, longest first, in batches whose padded size stays within `max_tokens`.

    A single sequence longer than `max_tokens` makes a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[batch[0]] if batch else lengths[index]
        if batch and longest * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
