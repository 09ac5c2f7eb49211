"""Approximate influence from projected gradients, which serve validation sets that come later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline_lib.atomic import new_file, write_text
from pipeline_lib.config import ProjectedInfluence
from pipeline_lib.influence.drift import DriftMeter
from pipeline_lib.influence.features import Features, feature_table
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.objective import Gradient, group_gradient, scored_parameters
from pipeline_lib.influence.projection import Projection, make_projection
from pipeline_lib.influence.projection_check import check_projection
from pipeline_lib.influence.scorer import Keep, Progress, Scorer
from pipeline_lib.influence.scores import InfluenceScores, Products, scores_from_products
from pipeline_lib.influence.validation import ValidationGroups, check_signal, mean_gradient
from pipeline_lib.parquet import write_parquet
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup


def projection_of(config: ProjectedInfluence, policy: Policy) -> Projection:
    sizes = [parameter.numel() for parameter in scored_parameters(policy.model)]
    return make_projection(config, sizes, policy.device)


def projected_features(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    projection: Projection,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
    meter: DriftMeter | None = None,
) -> Features:
    """The projected gradient of each prompt; all zeros, without a run, where its group has no signal.

    `progress` is told how many more prompts with signal are done, `meter` what their tokens' ratios are.
    """

    def gradients() -> Iterator[Gradient]:
        for i in with_signal:
            gradient = group_gradient(
                policy,
                groups[i],
                temperature=temperature,
                tokens_per_micro_batch=tokens_per_micro_batch,
                observe=None if meter is None else meter.observe,
            )
            progress(1)  # before the yield, which after the last one does not come back
            yield gradient

    values_NK = np.zeros((len(groups), projection.dimension), dtype=np.float32)
    with_signal = [i for i, group in enumerate(groups) if group.has_signal]
    if with_signal:
        values_NK[with_signal] = projection.project_all(gradients(), len(with_signal))
    return Features(tuple(group.prompt_id for group in groups), values_NK, projection.name)


def validation_features(
    policy: Policy,
    validation: ValidationGroups,
    projection: Projection,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
    meter: DriftMeter | None = None,
) -> Features:
    """The projected mean gradient of each validation set.

    Raises ValueError for a set none of whose groups has signal.
    """
    check_signal(validation)

    def gradients() -> Iterator[Gradient]:
        for groups in validation.values():
            gradient = mean_gradient(
                policy,
                groups,
                scored_parameters(policy.model),
                temperature=temperature,
                tokens_per_micro_batch=tokens_per_micro_batch,
                meter=meter,
            )
            progress(sum(group.has_signal for group in groups))
            yield gradient

    values_VK = projection.project_all(gradients(), len(validation))
    return Features(tuple(validation), values_VK, projection.name)


def scores_of_features(prompts: Features, validation: Features) -> InfluenceScores:
    """Raises ValueError where the two were projected differently."""
    return scores_from_products(products_of_features(prompts, validation), validation.ids, norms(validation))


def products_of_features(prompts: Features, validation: Features) -> Products:
    if prompts.projection != validation.projection:
        raise ValueError(
            f"the prompts' features are of projection ({prompts.projection}), the validation sets' of "
            f"({validation.projection}): they have no common scale; project both alike"
        )
    dot_NV = prompts.values_NK.astype(np.float64) @ validation.values_NK.astype(np.float64).T
    return Products(prompts.ids, dot_NV, np.array(norms(prompts)))


def norms(features: Features) -> list[float]:
    """The length of each row."""
    lengths: list[float] = np.linalg.norm(features.values_NK.astype(np.float64), axis=1).tolist()
    return lengths


class ProjectedScorer(Scorer):
    """Dots are unbiased, and cosines off by about 1/sqrt(dimension). Features stay in the lake."""

    def __init__(self, policy: Policy, job: ScoreJob) -> None:
        super().__init__(policy, job)
        assert isinstance(job.influence, ProjectedInfluence)
        self.config = job.influence
        self.projection = projection_of(job.influence, policy)
        self.path = job.path("validation_features.npy")

    @property
    def prepared(self) -> list[Path]:
        return [self.path, self.job.lake_path("validation_features", "validation.parquet")]

    def prepare(self, validation: ValidationGroups, meter: DriftMeter, progress: Progress) -> Mapping[str, float]:
        self.validation = validation_features(
            self.policy,
            validation,
            self.projection,
            temperature=self.job.temperature,
            tokens_per_micro_batch=self.job.tokens_per_micro_batch,
            progress=progress,
            meter=meter,
        )
        check = check_projection(
            self.policy,
            [group for groups in validation.values() for group in groups],
            self.projection,
            n=self.config.check_prompts,
            temperature=self.job.temperature,
            tokens_per_micro_batch=self.job.tokens_per_micro_batch,
        )
        write_text(self.job.path("projection_check.json"), json.dumps(check.to_dict() if check else {}))
        lake_path = self.job.lake_path("validation_features", "validation.parquet")
        write_parquet(lake_path, feature_table(self.validation, "validation_set"))
        with new_file(self.path) as temporary, temporary.open("wb") as file:
            np.save(file, self.validation.values_NK)
        return dict(zip(self.validation.ids, norms(self.validation), strict=True))

    def load(self) -> None:
        self.validation = Features(tuple(self.job.validation), np.load(self.path), self.projection.name)

    def score(self, groups: Sequence[RolloutGroup], meter: DriftMeter, progress: Progress) -> tuple[Products, Keep]:
        features = projected_features(
            self.policy,
            groups,
            self.projection,
            temperature=self.job.temperature,
            tokens_per_micro_batch=self.job.tokens_per_micro_batch,
            progress=progress,
            meter=meter,
        )
        return products_of_features(features, self.validation), {
            "features": lambda: feature_table(features, "prompt_id")
        }
