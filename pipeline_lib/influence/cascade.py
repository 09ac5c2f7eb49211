"""The cheap pass of a cascade: the last blocks of the policy, fewer trajectories, and who goes on from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from pipeline_lib.config import InfluenceSelection
from pipeline_lib.influence.objective import scored_parameters
from pipeline_lib.influence.pack import Weighted
from pipeline_lib.influence.scores import InfluenceScores
from pipeline_lib.selection.influence import reciprocal_rank_fusion
from pipeline_lib.selection.top_alpha import number_kept


def parameters_of_last_blocks(model: nn.Module, blocks: int) -> list[nn.Parameter]:
    """The scored parameters of the last `blocks` transformer blocks: the backward pass ends there.

    Raises ValueError where the policy has fewer.
    """
    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if len(found) < blocks:
        raise ValueError(
            f"influence.cascade.blocks={blocks}: the policy has {len(found)} transformer blocks; give at most as many"
        )
    scored = set(scored_parameters(model))
    return [p for block in found[-blocks:] for p in block.parameters() if p in scored]


def thinned(weighted: Sequence[Weighted], n: int) -> list[Weighted]:
    """About `n` of the trajectories, those that speak for and those against in turn, first ones first.

    Each kept one stands for all of its side, so that the weights of a side add up as before.
    """
    sides = [[w for w in weighted if w[1] > 0], [w for w in weighted if w[1] < 0]]
    shares = [min(len(sides[0]), math.ceil(n / 2)), min(len(sides[1]), math.ceil(n / 2))]
    return [
        (trajectory, weight * len(side) / share)
        for side, share in zip(sides, shares, strict=True)
        for trajectory, weight in side[:share]
    ]


def survivors(scores: InfluenceScores, selection: InfluenceSelection, keep: float) -> list[str]:
    """Ids of the prompts with signal that rank highest by the fused cheap score: keep·α of the pool, if there are."""
    n = number_kept(keep * selection.alpha, len(scores.prompt_ids))
    fused_N = reciprocal_rank_fusion(scores.ranks(), selection.rrf_k, last=n if selection.truncate else None)
    with_signal = np.flatnonzero(scores.norm > 0).tolist()
    best_first = sorted(with_signal, key=lambda i: (-fused_N[i], scores.prompt_ids[i]))
    return [scores.prompt_ids[i] for i in best_first[:n]]
