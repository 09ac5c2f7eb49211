"""Trajectories of many prompts as the rows of one forward pass.

A row holds one prompt and one or more of its completions: each completion sees the prompt and itself, so that
the prompt is computed once for all of them. Suffixes: P prompts, R rows, S tokens, K rows of a prompt,
M completion tokens of the whole pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipeline_lib.policy import Policy
from pipeline_lib.records import Trajectory

Weighted = tuple[Trajectory, float]
"""A trajectory and the weight of each of its token ratios."""

Row = Sequence[Weighted]
"""Completions of one prompt that share a row."""

ATTENTION_PRICE = 4.0
"""What a multiplication within attention costs beside one within a layer. What it leads to is measured by
`benchmarks/influence.py shared_prefix`."""


@dataclass(frozen=True)
class Pack:
    """Rows are left-padded, so that the last completion of each ends in the last column.

    Logits are wanted of the last `n_kept` columns, and `source_M` counts from the first of these.
    """

    n_prompts: int
    trajectories: tuple[Trajectory, ...]
    input_ids_RS: torch.Tensor
    attention_mask: torch.Tensor  # [R, S], or [R, 1, S, S] where a row holds several completions
    position_ids_RS: torch.Tensor
    rows_PK: torch.Tensor  # R where a prompt has fewer rows than others
    n_kept: int
    row_M: torch.Tensor
    source_M: torch.Tensor  # the column whose logits predict the token
    token_M: torch.Tensor
    weight_M: torch.Tensor
    behaviour_logprob_M: torch.Tensor
    trajectory_M: torch.Tensor  # index into `trajectories`


def make_pack(prompts: Sequence[Sequence[Row]], policy: Policy) -> Pack:
    """The rows of each prompt, in order."""
    rows = [(p, row) for p, rows_of_prompt in enumerate(prompts) for row in rows_of_prompt]
    R, S = len(rows), max(row_length(row) for _, row in rows)
    n_completion = [sum(len(t.completion_token_ids) for t, _ in row) for _, row in rows]
    n_kept = max(n_completion) + 1
    ids_RS = np.full((R, S), policy.pad_token_id, dtype=np.int64)
    position_RS = np.zeros((R, S), dtype=np.int64)
    segment_RS = np.full((R, S), -1, dtype=np.int64)
    tokens: list[tuple[np.ndarray, ...]] = []
    trajectories: list[Trajectory] = []
    for r, (_, row) in enumerate(rows):
        prompt = row[0][0].prompt_token_ids
        at = S - n_completion[r]
        ids_RS[r, at - len(prompt) : at] = prompt
        position_RS[r, at - len(prompt) : at] = np.arange(len(prompt))
        segment_RS[r, at - len(prompt) : at] = 0
        last_of_prompt = at - 1
        for segment, (trajectory, weight) in enumerate(row, start=1):
            completion = trajectory.completion_token_ids
            T = len(completion)
            ids_RS[r, at : at + T] = completion
            position_RS[r, at : at + T] = len(prompt) + np.arange(T)
            segment_RS[r, at : at + T] = segment
            sources = np.arange(at - 1, at + T - 1)
            sources[0] = last_of_prompt
            tokens.append(
                (
                    np.full(T, r),
                    sources - (S - n_kept),
                    np.array(completion),
                    np.full(T, weight),
                    np.array(trajectory.behaviour_logprobs),
                    np.full(T, len(trajectories)),
                )
            )
            trajectories.append(trajectory)
            at += T
    columns = [torch.from_numpy(np.concatenate(column)).to(policy.device) for column in zip(*tokens, strict=True)]
    row_M, source_M, token_M, weight_M, behaviour_logprob_M, trajectory_M = columns
    segments_RS = torch.from_numpy(segment_RS).to(policy.device)
    return Pack(
        n_prompts=len(prompts),
        trajectories=tuple(trajectories),
        input_ids_RS=torch.from_numpy(ids_RS).to(policy.device),
        attention_mask=_tree_mask(segments_RS) if any(len(row) > 1 for _, row in rows) else (segments_RS >= 0).long(),
        position_ids_RS=torch.from_numpy(position_RS).to(policy.device),
        rows_PK=_rows_of_prompts([len(rows_of_prompt) for rows_of_prompt in prompts]).to(policy.device),
        n_kept=n_kept,
        row_M=row_M,
        source_M=source_M,
        token_M=token_M,
        weight_M=weight_M.float(),
        behaviour_logprob_M=behaviour_logprob_M.float(),
        trajectory_M=trajectory_M,
    )


def rows_of(weighted: Sequence[Weighted], attention_share: float | None, max_tokens: int) -> list[list[Weighted]]:
    """The trajectories of one prompt in the rows that cost least, none above `max_tokens` that can be split.

    A row of S tokens costs S + attention_share·S²: completions in one row save the prompt, and pay for the
    attention between them that the mask throws away. Without an `attention_share` each has a row of its own.
    """
    alone = [[w] for w in weighted]
    if attention_share is None or len({t.prompt_token_ids for t, _ in weighted}) != 1:
        return alone
    best, least = alone, _cost(alone, attention_share)
    size = 2
    while size < 2 * len(weighted):
        rows = [list(weighted[i : i + size]) for i in range(0, len(weighted), size)]
        cost = _cost(rows, attention_share)
        if cost < least and max(row_length(row) for row in rows) <= max_tokens:
            best, least = rows, cost
        size *= 2
    return best


def attention_share(policy: Policy) -> float | None:
    """Price of S² beside that of S tokens in a row; None for a model whose attention takes no mask of ours."""
    config = policy.model.config.get_text_config()
    full = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or [])
    if not full or getattr(config, "sliding_window", None) or config._attn_implementation != "sdpa":
        return None
    width = config.num_attention_heads * (getattr(config, "head_dim", None) or _head_width(config))
    ends = (policy.model.get_input_embeddings(), policy.model.get_output_embeddings())
    outside = {id(p) for module in ends for p in module.parameters()}
    n_layer_parameters = sum(p.numel() for p in policy.model.parameters() if id(p) not in outside)
    return ATTENTION_PRICE * 2 * width * config.num_hidden_layers / n_layer_parameters


def packs(prompts: Sequence[Sequence[Row]], max_tokens: int) -> Iterator[list[int]]:
    """Indices of the prompts that have rows, longest row first, in packs whose padded size stays within
    `max_tokens`. A prompt that is larger makes a pack of its own."""
    longest = {p: max(row_length(row) for row in rows) for p, rows in enumerate(prompts) if rows}
    pack: list[int] = []
    n_rows = 0
    for p in sorted(longest, key=lambda p: (-longest[p], p)):
        if pack and (n_rows + len(prompts[p])) * longest[pack[0]] > max_tokens:
            yield pack
            pack, n_rows = [], 0
        pack.append(p)
        n_rows += len(prompts[p])
    if pack:
        yield pack


def row_length(row: Row) -> int:
    return len(row[0][0].prompt_token_ids) + sum(len(t.completion_token_ids) for t, _ in row)


def padded_tokens(rows: Sequence[Row]) -> int:
    return len(rows) * max(row_length(row) for row in rows)


def _cost(rows: Sequence[Row], attention_share: float) -> float:
    return sum(row_length(row) * (1 + attention_share * row_length(row)) for row in rows)


def _tree_mask(segment_RS: torch.Tensor) -> torch.Tensor:
    """[R, 1, S, S] bool: a token sees what comes before it in the prompt (segment 0) and in its own segment."""
    S = segment_RS.shape[1]
    query_RS1, key_R1S = segment_RS[:, :, None], segment_RS[:, None, :]
    seen_RSS = ((key_R1S == 0) | (key_R1S == query_RS1)) & torch.ones(S, S, device=segment_RS.device).tril().bool()
    # Padding (segment -1) sees itself: a row of scores that are all masked would be NaN.
    return (seen_RSS & (key_R1S >= 0) | torch.eye(S, device=segment_RS.device).bool())[:, None]


def _rows_of_prompts(counts: Sequence[int]) -> torch.Tensor:
    R, K = sum(counts), max(counts)
    rows_PK = torch.full((len(counts), K), R)
    start = 0
    for p, count in enumerate(counts):
        rows_PK[p, :count] = torch.arange(start, start + count)
        start += count
    return rows_PK


def _head_width(config: Any) -> int:
    return config.hidden_size // config.num_attention_heads
