"""What either estimator does for a pool that is scored shard by shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline_lib.influence.drift import DriftMeter
from pipeline_lib.influence.job import LakeKind, ScoreJob
from pipeline_lib.influence.scores import Products
from pipeline_lib.influence.validation import ValidationGroups
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

Progress = Callable[[int], None]
"""Told how many more prompts with signal are done."""


Keep = Mapping[LakeKind, Callable[[], pa.Table]]
"""Tables for the lake, each made when it is asked for."""


class Scorer(ABC):
    """One estimator of influence, holding the policy and the validation sets' gradients."""

    def __init__(self, policy: Policy, job: ScoreJob) -> None:
        self.policy = policy
        self.job = job

    @property
    @abstractmethod
    def prepared(self) -> list[Path]:
        """The files that `prepare` leaves for `load`."""

    @abstractmethod
    def prepare(self, validation: ValidationGroups, meter: DriftMeter, progress: Progress) -> Mapping[str, float]:
        """Compute and keep the gradients of the validation sets, on disk as well; their lengths, by set.

        Raises ValueError when no group of a set has signal.
        """

    @abstractmethod
    def load(self) -> None:
        """Take the validation gradients from where `prepare` left them."""

    @abstractmethod
    def score(self, groups: Sequence[RolloutGroup], meter: DriftMeter, progress: Progress) -> tuple[Products, Keep]:
        """Inner products of each prompt, in the order of job.validation, and what may be kept of the prompts."""
