"""Approximate influence from projected gradients, which serve validation sets that come later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.features import Features
from pipeline_lib.influence.objective import Gradient, group_gradient
from pipeline_lib.influence.projection import Projection
from pipeline_lib.influence.scores import InfluenceScores, scores_from_dots
from pipeline_lib.influence.validation import ValidationGroups, check_signal, mean_gradient
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

BATCH_ENTRIES = 1 << 30
"""Kept coordinates held at once, 4 GiB in float32: the more prompts share a block, the less is drawn."""


def projection_of(config: ProjectedInfluence, policy: Policy) -> Projection:
    return Projection(
        [parameter.numel() for parameter in policy.model.parameters()],
        keep_ratio=config.keep_ratio,
        dimension=config.dimension,
        seed=config.seed,
        device=policy.device,
    )


def projected_features(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    projection: Projection,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
) -> Features:
    """The projected gradient of each prompt; all zeros, without a run, where its group has no signal.

    `progress` is told how many more prompts with signal are done.
    """

    def gradients() -> Iterator[Gradient]:
        for i in with_signal:
            g = group_gradient(
                policy, groups[i], temperature=temperature, tokens_per_micro_batch=tokens_per_micro_batch
            )
            progress(1)
            yield g

    values_NK = np.zeros((len(groups), projection.dimension), dtype=np.float32)
    with_signal = [i for i, group in enumerate(groups) if group.has_signal]
    if with_signal:
        values_NK[with_signal] = _project(projection, gradients(), len(with_signal))
    return Features(tuple(group.prompt_id for group in groups), values_NK, projection.name)


def validation_features(
    policy: Policy,
    validation: ValidationGroups,
    projection: Projection,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
) -> Features:
    """The projected mean gradient of each validation set.

    Raises ValueError for a set none of whose groups has signal.
    """
    check_signal(validation)
    values_VK = _project(
        projection,
        (
            mean_gradient(policy, groups, temperature=temperature, tokens_per_micro_batch=tokens_per_micro_batch)
            for groups in validation.values()
        ),
        len(validation),
    )
    return Features(tuple(validation), values_VK, projection.name)


def scores_of_features(prompts: Features, validation: Features) -> InfluenceScores:
    """Raises ValueError where the two were projected differently."""
    if prompts.projection != validation.projection:
        raise ValueError(
            f"the prompts' features are of projection ({prompts.projection}), the validation sets' of "
            f"({validation.projection}): they have no common scale; project both alike"
        )
    values_NK, values_VK = prompts.values_NK.astype(np.float64), validation.values_NK.astype(np.float64)
    return scores_from_dots(
        prompts.ids,
        validation.ids,
        dot_NV=values_NK @ values_VK.T,
        norm_N=np.linalg.norm(values_NK, axis=1),
        direction_norm_V=np.linalg.norm(values_VK, axis=1),
    )


def projected_scores(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    validation: ValidationGroups,
    config: ProjectedInfluence,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
) -> InfluenceScores:
    """As `exact_scores`, estimated: dots are unbiased, and cosines off by about 1/sqrt(dimension)."""
    projection = projection_of(config, policy)
    directions = validation_features(
        policy,
        validation,
        projection,
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
    )
    prompts = projected_features(
        policy,
        groups,
        projection,
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        progress=progress,
    )
    return scores_of_features(prompts, directions)


def _project(projection: Projection, gradients: Iterator[Gradient], n: int) -> np.ndarray:
    """The features of n gradients, taken one by one and projected in batches."""
    size = min(n, max(1, BATCH_ENTRIES // projection.n_kept))
    masked_BM = torch.empty(size, projection.n_kept, device=projection.device)
    features = []
    for start in range(0, n, size):
        rows = min(size, n - start)
        for row in range(rows):
            masked_BM[row] = projection.mask(next(gradients))
        features.append(projection.project(masked_BM[:rows]).cpu().numpy())
    return np.concatenate(features)
