"""trackio: one run a stage, in the SQLite file of its project under TRACKIO_DIR."""

from __future__ import annotations

from collections.abc import Mapping

import trackio
from trackio.sqlite_storage import SQLiteStorage

from pipeline_lib.config import TrackioTracker
from pipeline_lib.tracking.base import TrackedStage


class Trackio:
    def __init__(self, config: TrackioTracker, stage: TrackedStage) -> None:
        name = f"{stage.name} · {stage.fingerprint}"  # trackio knows a run that is resumed by its name alone
        self._run = trackio.init(
            project=config.project,
            name=name,
            group=stage.run,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        is_local = self._run.url is None  # else TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set
        self.last_step = (SQLiteStorage.get_max_step_for_run(config.project, name) or 0) if is_local else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, *, failed: bool) -> None:
        self._run.finish()
