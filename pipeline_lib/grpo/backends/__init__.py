"""What holds the parameters, computes gradients and steps the optimizer: torch, or DeepSpeed."""

from __future__ import annotations

from pipeline_lib.config import DeepSpeedBackend, Train
from pipeline_lib.grpo.backends.base import Backend, LogprobModule, NonFiniteGradient
from pipeline_lib.grpo.backends.torch_backend import TorchTraining, make_optimizer
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained

__all__ = ["Backend", "LogprobModule", "NonFiniteGradient", "TorchTraining", "make_backend", "make_optimizer"]


def make_backend(train: Train, trained: Trained, temperature: float, ranks: Ranks) -> Backend:
    """The back end that `train.backend` names, around `trained`."""
    if isinstance(train.backend, DeepSpeedBackend):
        from pipeline_lib.grpo.backends.deepspeed_backend import DeepSpeedTraining

        return DeepSpeedTraining(train, trained, temperature, ranks)
    return TorchTraining(trained, make_optimizer(trained.policy, train), temperature, ranks)
