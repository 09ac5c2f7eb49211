"""Influence of prompts on validation sets: the POPI objective, exact scores, projected features."""

from __future__ import annotations

import torch

from pipeline_lib.influence.exact import ExactScorer
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.projected import ProjectedScorer
from pipeline_lib.influence.scorer import Scorer
from pipeline_lib.policy import load_policy, resolve_device

SCORERS: dict[str, type[Scorer]] = {"exact": ExactScorer, "projected": ProjectedScorer}
"""By the config's `type`."""


def make_scorer(job: ScoreJob) -> Scorer:
    """The estimator that the job names, with the job's policy."""
    policy = load_policy(job.policy_path, device=resolve_device(job.device), dtype=getattr(torch, job.dtype))
    return SCORERS[job.influence.type](policy, job)


__all__ = ["SCORERS", "ScoreJob", "Scorer", "make_scorer"]
