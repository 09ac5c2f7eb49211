"""Low-rank adapters beside frozen weights (arXiv 2106.09685), by peft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pipeline_lib.config import Lora
from pipeline_lib.policy import Policy

if TYPE_CHECKING:
    from peft import PeftModel


def add_adapters(policy: Policy, config: Lora, seed: int) -> PeftModel:
    """Freeze the policy's weights and put adapters into its layers, in place; only they are trainable.

    Raises ValueError where peft is not installed, no layer has a name in `target_modules`, or one of them is a tied
    head, which could not be merged into weights that the embeddings share.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ValueError('train.lora needs peft, which is not installed: pip install -e ".[lora]"') from None
    tied = [policy.model.get_input_embeddings(), policy.model.get_output_embeddings()]
    tied_names = {name.rpartition(".")[2] for name, module in policy.model.named_modules() if module in tied}
    asked = tied_names.intersection(config.target_modules)
    if policy.model.config.tie_word_embeddings and asked:
        raise ValueError(
            f"train.lora.target_modules: {', '.join(sorted(asked))} shares weights with the head or the embeddings, "
            "so adapters on it cannot be merged; leave it out"
        )
    settings = LoraConfig(
        task_type="CAUSAL_LM", r=config.rank, lora_alpha=config.alpha, target_modules=config.target_modules
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # the same adapters when a stage is started again
        adapted = get_peft_model(policy.model, settings)
    adapted.train(False)
    return adapted
