"""rlsift's side of benchmarks/trainer.py: `python benchmarks/trainer_rlsift.py (measure|check) SETTING OUT`.

All that touches rlsift's rollouts and updates stands in `sample` and `update`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from trainer_setting import Setting, memory_mib, reward_of, write_json

from pipeline_lib.config import DapoLoss, Train
from pipeline_lib.grpo.backends import TorchTraining
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.update import UpdateMetrics, update_policy
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.records import Prompt, RolloutGroup, Trajectory, Verdict
from pipeline_lib.rollout import Rollout, SamplingParams, TransformersEngine, roll_out

Answers = Sequence[tuple[Prompt, str]]


def sample(policy: Policy, prompts: Sequence[Prompt], *, group_size: int, tokens: int, seed: int) -> Rollout:
    """A group for each prompt, all sequences decoded at once; rewards by `reward_of`, no verifier."""

    def grade(answers: Answers) -> list[Verdict]:
        rewards = [reward_of(i % group_size) for i in range(len(answers))]
        return [Verdict(reward=reward, correct=reward > 0) for reward in rewards]

    params = SamplingParams(n=group_size, temperature=1.0, max_tokens=tokens, batch_size=len(prompts) * group_size)
    return roll_out(policy, TransformersEngine(policy), grade, prompts, params, seed)


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, groups: Sequence[RolloutGroup], tokens_per_micro_batch: int
) -> UpdateMetrics:
    """One optimizer step: token mean over the batch, clipped at 0.2, no KL penalty."""
    config = Train(tokens_per_micro_batch=tokens_per_micro_batch, loss=DapoLoss(clip_high=0.2))
    backend = TorchTraining(Trained(policy), optimizer, 1.0, Ranks())
    learning_rate = optimizer.param_groups[0]["lr"]
    return update_policy(backend, None, groups, config, learning_rate=learning_rate, max_tokens=1)


def adamw(policy: Policy, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(policy.model.parameters(), lr=learning_rate, weight_decay=0.0)


def without_signal(group: RolloutGroup) -> RolloutGroup:
    return RolloutGroup(group.prompt_id, tuple(dataclasses.replace(t, reward=1.0) for t in group.trajectories))


def given_groups(setting: Setting) -> list[RolloutGroup]:
    """The trajectories of `check`."""
    trajectories = [
        Trajectory(
            prompt_id=str(i // setting.group_size),
            sample_index=i % setting.group_size,
            prompt_token_ids=tuple(given["prompt"]),
            completion_token_ids=tuple(given["completion"]),
            behaviour_logprobs=tuple(given["logprobs"]),
            finish_reason="length",
            text="",
            reward=reward_of(i % setting.group_size),
            correct=reward_of(i % setting.group_size) > 0,
            verifier_status="ok",
        )
        for i, given in enumerate(setting.check)
    ]
    starts = range(0, len(trajectories), setting.group_size)
    return [RolloutGroup(trajectories[i].prompt_id, tuple(trajectories[i : i + setting.group_size])) for i in starts]


def load(setting: Setting) -> Policy:
    return load_policy(setting.policy, device=torch.device("cpu"), dtype=torch.float32, trainable=True)


def check(setting: Setting) -> dict[str, float]:
    """Loss and gradient norm of the trajectories given; pad counts as any other token, as it does in TRL's loss."""
    policy = load(setting)
    policy = dataclasses.replace(policy, eos_token_ids=(*policy.eos_token_ids, policy.pad_token_id))
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    metrics = update(policy, optimizer, given_groups(setting), setting.tokens_per_micro_batch)
    return {"loss": metrics.loss, "grad_norm": metrics.grad_norm}


def measure(setting: Setting) -> dict[str, object]:
    """Seconds of each step but the first, and then of updates where every second group has no signal."""
    policy = load(setting)
    prompts = [Prompt("chains", tuple(messages), "", "exact") for messages in setting.prompts]  # type: ignore[arg-type]
    loaded = memory_mib("VmRSS")
    optimizer = adamw(policy, setting.learning_rate)
    rollout_s, update_s, half_s = [], [], []
    for step in range(setting.steps):
        start = time.perf_counter()
        rollout = sample(policy, prompts, group_size=setting.group_size, tokens=setting.completion_tokens, seed=step)
        sampled = time.perf_counter()
        update(policy, optimizer, rollout.groups, setting.tokens_per_micro_batch)
        rollout_s.append(sampled - start)
        update_s.append(time.perf_counter() - sampled)
    peak = memory_mib("VmHWM")
    half = [without_signal(group) if i % 2 else group for i, group in enumerate(rollout.groups)]
    for _ in range(setting.steps):
        start = time.perf_counter()
        update(policy, optimizer, half, setting.tokens_per_micro_batch)
        half_s.append(time.perf_counter() - start)
    return {
        "rollout_s": rollout_s[1:],
        "update_s": update_s[1:],
        "total_s": [a + b for a, b in zip(rollout_s, update_s, strict=True)][1:],
        "update_half_s": half_s[1:],
        "generated_tokens": rollout.generated_tokens,
        "loaded_mib": loaded,
        "peak_mib": peak,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    what, setting_path, out = sys.argv[1:]
    setting = Setting.read(Path(setting_path))
    torch.set_num_threads(setting.threads)
    write_json(Path(out), {"measure": measure, "check": check}[what](setting))


if __name__ == "__main__":
    main()
