"""Exact influence: each prompt's whole gradient against each validation set's, no projection.

Suffixes: N prompts, V validation sets, D entries of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from pipeline_lib.influence.objective import (
    Gradient,
    Weighted,
    gradient,
    sequence_length,
    weighted_trajectories,
)
from pipeline_lib.influence.packed import packed_dots, supports
from pipeline_lib.influence.scores import InfluenceScores, scores_from_dots
from pipeline_lib.influence.validation import ValidationGroups, check_signal, mean_gradient
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup


def exact_scores(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    validation: ValidationGroups,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
) -> InfluenceScores:
    """<g_i, v_j>, its cosine, and |g_i| for every prompt i and validation set j. CROPI, arXiv 2510.26491.

    A group without signal has gradient 0: it is never run and scores 0 throughout. `progress` is told how
    many more of the others are done. Nothing is kept of a prompt but V + 1 numbers.
    Raises ValueError when no group of a validation set has signal, or a gradient is not finite.
    """
    check_signal(validation)
    directions_VD = _directions(policy, validation, temperature, tokens_per_micro_batch)
    dot_NV = np.zeros((len(groups), len(validation)))
    squared_norm_N = np.zeros(len(groups))
    weighted_N = [weighted_trajectories(group) for group in groups]
    packable = supports(policy.model)
    for pack in _packs(weighted_N, tokens_per_micro_batch if packable else 0):
        prompts = [weighted_N[i] for i in pack]
        if packable and _padded_tokens(prompts) <= tokens_per_micro_batch:
            dots, squares = packed_dots(policy, prompts, directions_VD, temperature=temperature)
        else:
            # A prompt of several micro-batches: its gradient has to be whole before its norm is taken.
            [weighted] = prompts
            g_D = gradient(policy, weighted, temperature=temperature, tokens_per_micro_batch=tokens_per_micro_batch)
            dots, squares = _plain_dots(g_D, directions_VD)
        dot_NV[pack] = dots.numpy()
        squared_norm_N[pack] = squares.numpy()
        progress(len(pack))
    squared_direction_V = sum(v_VD.square().sum(1).double().cpu().numpy() for v_VD in directions_VD)
    return scores_from_dots(
        [group.prompt_id for group in groups],
        list(validation),
        dot_NV=dot_NV,
        norm_N=np.sqrt(squared_norm_N),
        direction_norm_V=np.sqrt(squared_direction_V),
    )


def _directions(
    policy: Policy, validation: ValidationGroups, temperature: float, tokens_per_micro_batch: int
) -> list[torch.Tensor]:
    """The v_j of all sets, one [V, D] for each parameter."""
    directions_VD = [
        torch.zeros(len(validation), parameter.numel(), device=parameter.device)
        for parameter in policy.model.parameters()
    ]
    for j, groups in enumerate(validation.values()):
        v_D = mean_gradient(policy, groups, temperature=temperature, tokens_per_micro_batch=tokens_per_micro_batch)
        for row_VD, part in zip(directions_VD, v_D, strict=True):
            row_VD[j] = part.reshape(-1)
    return directions_VD


def _plain_dots(g_D: Gradient, directions_VD: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """As `packed_dots` gives them, of one whole gradient."""
    pairs = [(v_VD, part.reshape(-1)) for v_VD, part in zip(directions_VD, g_D, strict=True)]
    dots_V = torch.stack([v_VD @ part for v_VD, part in pairs]).double().sum(0)
    squared_norm = torch.stack([part @ part for _, part in pairs]).double().sum()
    return dots_V.cpu()[None], squared_norm.cpu()[None]


def _packs(weighted_N: Sequence[Sequence[Weighted]], max_tokens: int) -> Iterator[list[int]]:
    """Indices of the prompts with trajectories to run, longest first, in packs whose padded size stays within
    `max_tokens`. A prompt that is larger makes a pack of its own."""
    longest = {i: max(sequence_length(t) for t, _ in w) for i, w in enumerate(weighted_N) if w}
    pack: list[int] = []
    for i in sorted(longest, key=lambda i: (-longest[i], i)):
        if pack and _padded_tokens([weighted_N[j] for j in (*pack, i)]) > max_tokens:
            yield pack
            pack = []
        pack.append(i)
    if pack:
        yield pack


def _padded_tokens(prompts: Sequence[Sequence[Weighted]]) -> int:
    trajectories = [trajectory for weighted in prompts for trajectory, _ in weighted]
    return len(trajectories) * max(sequence_length(trajectory) for trajectory in trajectories)
