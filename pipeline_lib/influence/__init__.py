"""Influence of prompts on validation sets: the POPI objective, exact scores, projected features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline_lib.config import ExactInfluence, Influence
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.features import Features, feature_schema, feature_table
from pipeline_lib.influence.objective import group_gradient, surrogate, weighted_trajectories
from pipeline_lib.influence.projected import (
    projected_features,
    projected_scores,
    projection_of,
    scores_of_features,
    validation_features,
)
from pipeline_lib.influence.scores import SCORE_SCHEMA, InfluenceScores
from pipeline_lib.influence.validation import ValidationGroups
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup


def score(
    config: Influence,
    policy: Policy,
    groups: Sequence[RolloutGroup],
    validation: ValidationGroups,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
) -> InfluenceScores:
    """Influence of each group's prompt on each validation set, by the estimator that the config names."""
    if isinstance(config, ExactInfluence):
        return exact_scores(
            policy,
            groups,
            validation,
            temperature=temperature,
            tokens_per_micro_batch=tokens_per_micro_batch,
            progress=progress,
        )
    return projected_scores(
        policy,
        groups,
        validation,
        config,
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        progress=progress,
    )


__all__ = [
    "SCORE_SCHEMA",
    "Features",
    "InfluenceScores",
    "ValidationGroups",
    "exact_scores",
    "feature_schema",
    "feature_table",
    "group_gradient",
    "projected_features",
    "projected_scores",
    "projection_of",
    "score",
    "scores_of_features",
    "surrogate",
    "validation_features",
    "weighted_trajectories",
]
