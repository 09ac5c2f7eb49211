"""The trackers of a training stage, opened by the steps that have something to log."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.config import RunConfig
from pipeline_lib.tracking import TrackedStage, Trackers, make_trackers
from tasks.step import Workshop

LAST_STEP = "SELECT coalesce(max(step), 0) AS step FROM train_steps WHERE fingerprint = $1"


def open_trackers(run: RunConfig, stage: int, fingerprint: str, at: Workshop) -> Trackers:
    """The trackers that the config names, on the run of the training step with `fingerprint`. Raises ValueError."""
    return make_trackers(
        run.tracking,
        TrackedStage(run=run.name, stage=stage, fingerprint=fingerprint, root=Path(run.root)),
        logged=at.warehouse.query(LAST_STEP, [fingerprint])["step"][0].as_py(),
        warn=at.reporter.say,
    )
