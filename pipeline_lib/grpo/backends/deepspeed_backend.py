"""DeepSpeed's ZeRO (arXiv 1910.02054): optimizer state, gradients and parameters shared out over the processes."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.atomic import write_text
from pipeline_lib.config import DeepSpeedBackend, Train
from pipeline_lib.grpo.backends.base import LogprobModule, NonFiniteGradient
from pipeline_lib.grpo.backends.torch_backend import make_optimizer
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.policy import TokenBatch
from pipeline_lib.policy.checkpointing import checkpointing
from pipeline_lib.policy.logprobs import EntropyKind, TokenLogprobs

TAG = "deepspeed"
LAYOUT = "deepspeed.json"


class DeepSpeedTraining:
    """Stages 0 to 2 keep whole parameters on every process, from which rollouts are sampled. Stage 3 keeps a part of
    each, so `trained` is then a copy of the policy that takes over the parameters after every step.

    Parameters and optimizer state are float32 in every stage; a policy of another dtype runs under autocast.
    """

    def __init__(self, train: Train, trained: Trained, temperature: float, ranks: Ranks) -> None:
        try:
            import deepspeed
        except ImportError:
            raise ValueError(
                "train.backend.type=deepspeed: deepspeed is not installed; "
                'DS_BUILD_OPS=0 pip install -e ".[deepspeed]", or set train.backend.type: torch'
            ) from None
        assert isinstance(train.backend, DeepSpeedBackend)
        self._gathered: Any = deepspeed.zero.GatheredParameters
        self._stage = train.backend.zero_stage
        self.ranks = ranks
        self.trained = _copy_of(trained) if self._stage == 3 else trained
        self._model, self._sharded = trained.policy.model, trained.parameters()
        if not torch.distributed.is_initialized():
            deepspeed.init_distributed(dist_backend="nccl" if trained.policy.device.type == "cuda" else "gloo")
        self._engine, _, _, _ = deepspeed.initialize(
            model=LogprobModule(trained.policy, temperature),
            optimizer=make_optimizer(trained.policy, train),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": {"stage": self._stage},
                # Stage 0 clips in `apply`, where a gradient that is not finite can still be refused.
                "gradient_clipping": train.max_grad_norm if self._stage > 0 else 0.0,
            },
        )

    def checkpointing(self, wanted: bool) -> AbstractContextManager[None]:
        # Stage 3 gathers parameters in hooks, which fire in the second pass of the reentrant kind alone.
        return checkpointing(self._model, wanted, reentrant=self._stage == 3)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(last)
        yield

    def logprobs(self, batch: TokenBatch, entropy: EntropyKind) -> TokenLogprobs:
        return TokenLogprobs(*self._engine(batch, entropy))

    def backward(self, loss: torch.Tensor) -> None:
        # DeepSpeed takes the mean over processes; the loss is a share of the whole batch's.
        self._engine.backward(loss * self.ranks.size)

    def apply(self, learning_rate: float, max_grad_norm: float) -> float:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        if self._stage == 0:
            norm = float(torch.nn.utils.clip_grad_norm_(self._sharded.values(), max_grad_norm))
            if not torch.isfinite(torch.tensor(norm)):
                self._engine.zero_grad()
                raise NonFiniteGradient(f"gradient norm {norm}")
            self._engine.step()
            return norm
        self._engine.step()
        if self._engine.optimizer.overflow:
            raise NonFiniteGradient("gradient norm inf or nan")
        self._update_copy()
        return float(self._engine.get_global_grad_norm())

    def save(self, directory: Path) -> None:
        self._engine.save_checkpoint(str(directory), tag=TAG, save_latest=False)
        if self.ranks.first:
            layout = {"processes": self.ranks.size, "zero_stage": self._stage}
            write_text(directory / LAYOUT, json.dumps(layout))

    def load(self, directory: Path) -> None:
        layout = json.loads((directory / LAYOUT).read_text()) if (directory / LAYOUT).exists() else {}
        own = {"processes": self.ranks.size, "zero_stage": self._stage}
        if layout != own:
            raise ValueError(
                f"{directory}: written by {layout or 'another back end'}, and ZeRO's parts do not fit {own}; set "
                "train.backend as it was, or remove the stage's directory to train the stage again"
            )
        self._engine.load_checkpoint(str(directory), tag=TAG)
        self._update_copy()

    @torch.no_grad()
    def _update_copy(self) -> None:
        if self._stage < 3:
            return
        for name, whole in self.trained.parameters().items():
            with self._gathered([self._sharded[name]]):
                whole.copy_(self._sharded[name])


def _copy_of(trained: Trained) -> Trained:
    """A policy of its own, adapters included."""
    if trained.adapters is None:
        return Trained(dataclasses.replace(trained.policy, model=copy.deepcopy(trained.policy.model)))
    adapters = copy.deepcopy(trained.adapters)
    model: Any = adapters.get_base_model()
    return Trained(dataclasses.replace(trained.policy, model=model), adapters)
