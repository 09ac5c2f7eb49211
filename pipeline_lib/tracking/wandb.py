"""Weights & Biases: one run a stage, with the step's fingerprint as its id."""

from __future__ import annotations

import os
from collections.abc import Mapping

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported

import wandb

from pipeline_lib.config import WandbTracker
from pipeline_lib.tracking.base import TrackedStage
from pipeline_lib.tracking.names import ALWAYS_LOGGED

X_AXIS = "rlsift/step"
"""wandb's own steps only ever grow; an axis of our own takes an evaluation of a step that has its row already."""


class Wandb:
    def __init__(self, config: WandbTracker, stage: TrackedStage) -> None:
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            mode=config.mode,
            dir=str(stage.root),
            id=stage.fingerprint,
            name=stage.name,
            group=stage.run,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # what the process prints is not its to keep
        )
        self._run.define_metric(X_AXIS, hidden=True)
        self._run.define_metric("*", step_metric=X_AXIS)
        self.last_step = None if config.mode == "offline" else int(self._run.summary.get(X_AXIS) or 0)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = step if ALWAYS_LOGGED in metrics else step + 1  # what is not of training comes after its step's own row
        self._run.log({X_AXIS: step, **metrics}, step=max(row, self._run.step), commit=True)

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
