"""TensorBoard: event files in DIRECTORY/RUN/stage-M-FINGERPRINT."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from pipeline_lib.config import TensorBoardTracker
from pipeline_lib.tracking.base import TrackedStage
from pipeline_lib.tracking.names import ALWAYS_LOGGED


class TensorBoard:
    def __init__(self, config: TensorBoardTracker, stage: TrackedStage) -> None:
        root = Path(config.directory) if config.directory else stage.root / "tensorboard"
        directory = root / stage.run / f"stage-{stage.stage}-{stage.fingerprint}"
        self.last_step = _last_step(directory)
        _let_older_files_sort_first(directory)
        # What a killed attempt left half-written is hidden from the reader.
        self._writer = SummaryWriter(str(directory), purge_step=self.last_step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        self._writer.close()


def _let_older_files_sort_first(directory: Path) -> None:
    """Readers take event files by name, which has the second and then a number that does not sort: .10 before .9.

    So those of this second, and of seconds to come where the clock was set back, are named for seconds gone by.
    """
    latest = int(time.time()) - 1
    for file in sorted(directory.glob("events.out.tfevents.*"), reverse=True):
        parts = file.name.split(".")
        second = int(parts[3])
        if second > latest:
            parts[3] = f"{latest:010d}"
            file.rename(file.with_name(".".join(parts)))
        latest = min(second, latest) - 1


def _last_step(directory: Path) -> int:
    events = EventAccumulator(str(directory))
    if not directory.exists() or ALWAYS_LOGGED not in events.Reload().Tags()["scalars"]:
        return 0
    last: int = events.Scalars(ALWAYS_LOGGED)[-1].step
    return last
