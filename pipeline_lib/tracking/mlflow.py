"""MLflow: one run a stage, found again by a tag that holds the step's fingerprint."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from pipeline_lib.config import MlflowTracker
from pipeline_lib.tracking.base import TrackedStage
from pipeline_lib.tracking.names import ALWAYS_LOGGED

TAG = "rlsift.fingerprint"


class Mlflow:
    def __init__(self, config: MlflowTracker, stage: TrackedStage) -> None:
        default = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{stage.root / 'mlflow.db'}"
        self._client = MlflowClient(config.tracking_uri or default)
        self._run_id = self._open(config.experiment, stage)
        history = self._client.get_metric_history(self._run_id, ALWAYS_LOGGED)
        self.last_step = max((metric.step for metric in history), default=0)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        # A name may have no @ in it.
        values = [Metric(name.replace("@", "_at_"), value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=values)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")

    def _open(self, experiment: str, stage: TrackedStage) -> str:
        known = self._client.get_experiment_by_name(experiment)
        experiment_id = known.experiment_id if known else self._client.create_experiment(experiment)
        runs = self._client.search_runs([experiment_id], f"tags.`{TAG}` = '{stage.fingerprint}'", max_results=1)
        if runs:
            run_id: str = runs[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {TAG: stage.fingerprint, "rlsift.run": stage.run, "rlsift.stage": str(stage.stage)}
        created: str = self._client.create_run(experiment_id, run_name=stage.name, tags=tags).info.run_id
        return created
