"""Training metrics to TensorBoard, Weights & Biases, MLflow and trackio, each by its own library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from pipeline_lib.config import Tracker as TrackerConfig
from pipeline_lib.tracking.base import TrackedStage, Tracker
from pipeline_lib.tracking.trackers import Trackers

__all__ = ["TRACKERS", "TrackedStage", "Tracker", "Trackers", "make_trackers"]

# Import paths, so that a run imports the libraries that it names and no other.
TRACKERS: dict[str, str] = {
    "tensorboard": "pipeline_lib.tracking.tensorboard:TensorBoard",
    "wandb": "pipeline_lib.tracking.wandb:Wandb",
    "mlflow": "pipeline_lib.tracking.mlflow:Mlflow",
    "trackio": "pipeline_lib.tracking.trackio:Trackio",
}
"""By the config's `type`."""


def make_trackers(
    configs: Sequence[TrackerConfig], stage: TrackedStage, *, logged: int, warn: Callable[[str], None]
) -> Trackers:
    """Open each tracker's run for `stage`. Raises ValueError, naming the extra, where a library is not installed.

    `logged` is the last step of earlier attempts, for trackers that cannot tell. `warn` is told in words of a
    tracker that fails.
    """
    makers = [(config.type, partial(_load(config.type), config, stage)) for config in configs]
    return Trackers(makers, logged=logged, warn=warn)


def _load(kind: str) -> Callable[[TrackerConfig, TrackedStage], Tracker]:
    module, _, class_name = TRACKERS[kind].partition(":")
    try:
        factory: Callable[[TrackerConfig, TrackedStage], Tracker] = getattr(import_module(module), class_name)
    except ImportError as error:
        raise ValueError(
            f"tracking: type {kind} needs the package {kind}, which cannot be imported ({error}); "
            f'pip install -e ".[{kind}]", or take it out of `tracking`'
        ) from None
    return factory
