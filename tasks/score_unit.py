"""A part of a scoring job, which any process that sees the run's root can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline_lib.influence import Scorer, make_scorer
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.shards import prepare, score_units
from pipeline_lib.kept import kept
from tasks.runners.worker import check_sees


@dataclass(frozen=True)
class ScoreUnit:
    """`unit` is one of the job's, or says that it is the validation sets' turn."""

    label: str
    unit: str
    root: Path
    fingerprint: str
    policy_path: str
    job_path: Path


def prepare_validation(unit: ScoreUnit) -> int:
    """The gradients of the validation sets; how many prompts were run for them, 0 where they are there already."""
    counted = [0]
    with _scorer(unit) as scorer:
        prepare(scorer.job, scorer, counted.append)
    return sum(counted)


def score_unit(unit: ScoreUnit) -> str:
    """Score a unit of a job whose validation sets are prepared. The scorer is kept for the next one."""
    with _scorer(unit, prepared=True) as scorer:
        score_units(scorer.job, scorer, [unit.unit], lambda _: None)
    return unit.unit


def _scorer(unit: ScoreUnit, *, prepared: bool = False) -> AbstractContextManager[Scorer]:
    check_sees(unit.root, unit.fingerprint, unit.policy_path)
    job = ScoreJob.read(unit.job_path)
    return kept(("scorer", job), partial(_open, job, prepared))


@contextmanager
def _open(job: ScoreJob, prepared: bool) -> Iterator[Scorer]:
    scorer = make_scorer(job)
    if prepared:
        scorer.load()
    yield scorer
