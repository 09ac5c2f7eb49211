"""Backward passes that run blocks again instead of keeping their activations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


@contextmanager
def checkpointing(model: PreTrainedModel, wanted: bool, *, reentrant: bool) -> Iterator[None]:
    """Of every block, for the length of the block; nothing else of the model trains. Backward by `.backward()`.

    The second pass of the reentrant kind is one of its own, whose hooks fire as in any other; the other kind works
    beside gradient reduction that counts a parameter's gradients.
    """
    if not wanted:
        yield
        return
    blocks = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    switch: Any = model
    # A block whose input requires no grad would get none from the reentrant kind, so transformers makes the
    # embeddings' output require it.
    switch.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    for block in blocks:
        block.training = True
    try:
        yield
    finally:
        for block in blocks:
            block.training = False
        switch.gradient_checkpointing_disable()
        switch.disable_input_require_grads()  # which the line above leaves on
