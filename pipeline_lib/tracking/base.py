"""What every tracker is: one run of its library for one training stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class TrackedStage:
    """The training stage that a tracker shows as one run."""

    run: str
    stage: int
    fingerprint: str
    """Of the training step. A run's id comes from it, so that a resumed stage goes on with the same run."""
    root: Path
    """Where local files go when the config names no other place."""

    @property
    def name(self) -> str:
        return f"{self.run} · stage {self.stage}"


class Tracker(Protocol):
    """Made from its config section and a TrackedStage; opens the stage's run, or goes on with it."""

    @property
    def last_step(self) -> int | None:
        """The last training step that the run has, 0 for none; None where the library cannot tell."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics to the run, `step` (from 1) on the x-axis."""

    def close(self, *, failed: bool) -> None:
        """Everything is written, or on its way, when it returns. `failed`: the stage did not end."""
