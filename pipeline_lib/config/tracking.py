"""Where metrics go beside the warehouse."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.config.section import Section


class TensorBoardTracker(Section):
    """Event files for TensorBoard, a directory a stage. Needs the extra `tensorboard`."""

    type: Literal["tensorboard"] = "tensorboard"
    directory: str | None = None
    """Absolute, or relative to the config file; None is ROOT/tensorboard."""


class WandbTracker(Section):
    """Weights & Biases. Needs the extra `wandb`."""

    type: Literal["wandb"] = "wandb"
    project: str = Field(default="rlsift", min_length=1)
    entity: str | None = None
    """Team or user; None is the default of whoever is logged in."""
    mode: Literal["offline", "online"] = "offline"
    """offline keeps the run in ROOT/wandb for `wandb sync`; online sends it as it goes, and needs a login."""


class MlflowTracker(Section):
    """MLflow. Needs the extra `mlflow`."""

    type: Literal["mlflow"] = "mlflow"
    tracking_uri: str | None = Field(default=None, min_length=1)
    """A server or a local store; None is MLFLOW_TRACKING_URI where it is set, else ROOT/mlflow.db."""
    experiment: str = Field(default="rlsift", min_length=1)


class TrackioTracker(Section):
    """trackio's local SQLite files under TRACKIO_DIR. Needs the extra `trackio`.

    Where somebody is logged in to the Hugging Face hub, trackio asks it for their name unless HF_HUB_OFFLINE=1.
    """

    type: Literal["trackio"] = "trackio"
    project: str = Field(default="rlsift", min_length=1)


Tracker = Annotated[
    TensorBoardTracker | WandbTracker | MlflowTracker | TrackioTracker,
    Field(discriminator="type"),
]
