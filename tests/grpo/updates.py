"""Run by torch.distributed.run: ten updates on fixed groups; the first process writes what came of them.

`python -m torch.distributed.run ... updates.py OUTPUT TRAIN_AS_JSON`
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from grpo_cases import CPU, MAX_TOKENS, TEMPERATURE, random_groups, reference_of, tiny_policy

from pipeline_lib.config import Train
from pipeline_lib.grpo.backends import make_backend
from pipeline_lib.grpo.checkpoint import load_checkpoint, save_checkpoint
from pipeline_lib.grpo.lora import add_adapters
from pipeline_lib.grpo.ranks import Ranks, end_together, join_ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.update import update_policy

STEPS = 10
LEARNING_RATE = 1e-4  # random completions are far from what the policy says: larger steps diverge
REWARDS = [[1.0, 0.0, 0.0], [0.3, 1.0, 0.3, 0.9], [1.0, 1.0], [0.0, 0.0, 1.0], [1.0, None, 0.0]]


def main() -> None:
    output, train = Path(sys.argv[1]), Train.model_validate_json(sys.argv[2])
    ranks = join_ranks(CPU) if "RANK" in os.environ else Ranks()
    behaviour, policy = tiny_policy(seed=1), tiny_policy(seed=1)
    trained = Trained(policy, None if train.lora is None else add_adapters(policy, train.lora, seed=3))
    backend = make_backend(train, trained, TEMPERATURE, ranks)
    resumed = output.with_suffix(".checkpoint") / "step-000005"
    first = load_checkpoint(resumed, backend)["step"] + 1 if resumed.exists() else 1
    losses = []
    for step in range(first, STEPS + 1):
        groups = random_groups(behaviour, REWARDS, seed=step)
        reference = reference_of(behaviour) if train.loss.kl_coefficient else None
        metrics = update_policy(backend, reference, groups, train, learning_rate=LEARNING_RATE, max_tokens=MAX_TOKENS)
        losses.append([metrics.loss, metrics.grad_norm, metrics.kl, metrics.sampling_logp_difference_max])
        if step == 5:
            save_checkpoint(resumed.parent, step, backend, {}, keep_last=1)
    if ranks.first:
        whole = torch.cat([p.detach().flatten() for p in backend.trained.policy.model.parameters()])
        output.write_text(json.dumps({"steps": losses, "parameters": whole.tolist()}))


if __name__ == "__main__":
    main()
    end_together()
