"""bfloat16 on a GPU against float32 on the CPU: exact influence and GRPO steps, in at most six minutes.

NOT RUN ON A GPU YET: written and tried on a CPU only (`--device cpu`).

    python benchmarks/gpu_check.py OUT --smollm2 DIR                                    # on the GPU machine
    python benchmarks/gpu_check.py OUT --device cpu --prompts 4 --group-size 4 --tokens 24 --budget 300

Needs torch, transformers, numpy, pyarrow, pydantic and the repository itself; no network. Each section prints what it
found and adds it to OUT/gpu_check.json, so that a run that is cut off leaves what was done. The CPU side of a section
is made as small as its share of the budget asks; a section that fails is recorded, and the next one goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import transformers
from trainer_policies import chain_prompts, write_builtin, write_copy, write_llama
from trainer_rlsift import adamw, sample, update
from trainer_setting import write_json

from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.scores import InfluenceScores
from pipeline_lib.influence.stability import spearman
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.records import Prompt, RolloutGroup

CPU = torch.device("cpu")
CPU_SHARE = 0.4
"""Of a section's budget that its float32 reference on the CPU may take."""
CPU_TOKENS = 4096
"""Tokens of a micro-batch on the CPU."""
NOISE = 0.1
"""Standard deviation, in nats, laid on behaviour log-probs: at ratios of 1 every loss would be the same sum."""

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    device: torch.device
    prompts: int
    group_size: int
    tokens: int
    """Of every completion."""
    micro_batch: int
    """Tokens of a micro-batch on the device."""

    @property
    def variants(self) -> list[tuple[torch.device, torch.dtype]]:
        """What is compared with float32 on the CPU; float32 on the GPU tells the device from the type."""
        types = [torch.float32, torch.bfloat16] if self.device.type == "cuda" else [torch.bfloat16]
        return [(self.device, dtype) for dtype in types]

    def tokens_on(self, device: torch.device) -> int:
        return self.micro_batch if device.type == "cuda" else CPU_TOKENS


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Seconds, the GPU's queue emptied before and after."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def fitting(seconds_each: float, budget_s: float, most: int) -> int:
    return max(2, min(most, int(budget_s / seconds_each)))


def rolled_out(policy: Policy, wanted: int, scale: Scale, seed: int) -> list[RolloutGroup]:
    """Groups with signal, of twice as many prompts; the reward is the mean token id, so that what one prompt
    teaches helps another. Raises ValueError when too few have signal."""
    groups = sample(
        policy, chain_prompts(2 * wanted), group_size=scale.group_size, tokens=scale.tokens, seed=seed
    ).groups
    rewarded = [
        RolloutGroup(
            group.prompt_id,
            tuple(dataclasses.replace(t, reward=float(np.mean(t.completion_token_ids))) for t in group.trajectories),
        )
        for group in groups
    ]
    with_signal = [group for group in rewarded if group.has_signal]
    if len(with_signal) < wanted:
        raise ValueError(
            f"{len(with_signal)} of {2 * wanted} groups have completions that differ, {wanted} are needed; raise "
            "--tokens or --group-size"
        )
    return with_signal[:wanted]


# --- exact influence --------------------------------------------------------------------------------------------


def influence(directory: Path, scale: Scale, budget_s: float) -> dict[str, Any]:
    """Spearman and largest error of the cosines with two validation sets, and seconds, over the same rollouts."""
    n_validation = max(2, scale.prompts // 8)
    wanted = scale.prompts + 2 * n_validation
    on_device = load_policy(directory, device=scale.device, dtype=torch.float32)
    with_signal = rolled_out(on_device, wanted, scale, seed=1)
    validation = {"a": with_signal[:n_validation], "b": with_signal[n_validation : 2 * n_validation]}
    pool = with_signal[2 * n_validation :]

    def exact(policy: Policy, groups: Sequence[RolloutGroup], sets: dict[str, list[RolloutGroup]]) -> InfluenceScores:
        tokens = scale.tokens_on(policy.device)
        return exact_scores(
            policy, groups, sets, temperature=1.0, tokens_per_micro_batch=tokens, progress=lambda _: None
        )

    cpu = load_policy(directory, device=CPU, dtype=torch.float32)
    pilot = {name: groups[:1] for name, groups in validation.items()}
    _, pilot_s = timed(lambda: exact(cpu, pool[:2], pilot))
    n = fitting(pilot_s / 4, CPU_SHARE * budget_s, wanted) - 2 * n_validation
    pool = pool[: max(n, 4)]
    expected, cpu_s = timed(lambda: exact(cpu, pool, validation))
    found: dict[str, Any] = {"prompts": len(pool), "validation_prompts": 2 * n_validation, "cpu_float32_s": cpu_s}
    found["cosine_std"] = float(expected.cosine.std())
    for device, dtype in scale.variants:
        policy = load_policy(directory, device=device, dtype=dtype)
        exact(policy, pool[:2], pilot)  # a warm-up
        scores, seconds = timed(lambda: exact(policy, pool, validation))
        found[_name(device, dtype)] = {
            "spearman": [spearman(scores.cosine[:, j], expected.cosine[:, j]) for j in range(len(validation))],
            "cosine_max_error": float(np.abs(scores.cosine - expected.cosine).max()),
            "norm_max_relative_error": float(np.abs(scores.norm / expected.norm - 1).max()),
            "seconds": seconds,
            "cpu_float32_s / seconds": cpu_s / seconds,
        }
    return found


# --- GRPO steps ---------------------------------------------------------------------------------------------------


def grpo(directory: Path, scale: Scale, budget_s: float) -> dict[str, Any]:
    """Loss and gradient norm of the same trajectories, then steps that sample and update, in tokens a second."""
    on_device = load_policy(directory, device=scale.device, dtype=torch.float32)
    groups = [_noisy(group, seed=i) for i, group in enumerate(rolled_out(on_device, scale.prompts, scale, seed=2))]
    _, _, pilot_s = _gradient(directory, CPU, torch.float32, groups[:1], scale)
    n = fitting(pilot_s, CPU_SHARE * budget_s / 2, len(groups))
    loss, norm, cpu_s = _gradient(directory, CPU, torch.float32, groups[:n], scale)
    found: dict[str, Any] = {"prompts": n, "cpu_float32": {"loss": loss, "grad_norm": norm, "seconds": cpu_s}}
    for device, dtype in scale.variants:
        its_loss, its_norm, _ = _gradient(directory, device, dtype, groups[:n], scale)
        found[_name(device, dtype)] = {
            "loss": its_loss,
            "loss_difference": its_loss - loss,
            "grad_norm": its_norm,
            "grad_norm_relative_difference": its_norm / norm - 1,
        }
    prompts = chain_prompts(scale.prompts)
    found["steps"] = {
        "cpu_float32": _steps(directory, CPU, torch.float32, prompts[: max(2, n // 2)], scale, steps=1),
        **{
            _name(device, dtype): _steps(directory, device, dtype, prompts, scale, steps=3)
            for device, dtype in scale.variants
        },
    }
    return found


def _gradient(
    directory: Path, device: torch.device, dtype: torch.dtype, groups: Sequence[RolloutGroup], scale: Scale
) -> tuple[float, float, float]:
    """(loss, gradient norm, seconds) of an update that leaves the weights as they are."""
    policy = load_policy(directory, device=device, dtype=dtype, trainable=True)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    metrics, seconds = timed(lambda: update(policy, optimizer, groups, scale.tokens_on(device)))
    return metrics.loss, metrics.grad_norm, seconds


def _steps(
    directory: Path, device: torch.device, dtype: torch.dtype, prompts: Sequence[Prompt], scale: Scale, *, steps: int
) -> dict[str, float | None]:
    """Of the fastest step. `sampling_logp_difference_mean` is between sampling and training, in nats a token."""
    policy = load_policy(directory, device=device, dtype=dtype, trainable=True)
    optimizer = adamw(policy, 1e-6)
    rollout_s, update_s = [], []
    for step in range(steps):
        rollout, seconds = timed(
            lambda: sample(policy, prompts, group_size=scale.group_size, tokens=scale.tokens, seed=step)
        )
        rollout_s.append(seconds)
        metrics, seconds = timed(lambda: update(policy, optimizer, rollout.groups, scale.tokens_on(device)))
        update_s.append(seconds)
    trajectories = [t for group in rollout.groups for t in group.trajectories]
    tokens = rollout.generated_tokens + sum(len(t.prompt_token_ids) for t in trajectories)
    return {
        "generated_tokens_a_second": rollout.generated_tokens / min(rollout_s),
        "updated_tokens_a_second": tokens / min(update_s),
        "rollout_s": min(rollout_s),
        "update_s": min(update_s),
        "sampling_logp_difference_mean": metrics.sampling_logp_difference_mean,
    }


def _noisy(group: RolloutGroup, *, seed: int) -> RolloutGroup:
    random = np.random.default_rng(seed)
    trajectories = [
        dataclasses.replace(
            t, behaviour_logprobs=tuple(b + NOISE * random.standard_normal() for b in t.behaviour_logprobs)
        )
        for t in group.trajectories
    ]
    return RolloutGroup(group.prompt_id, tuple(trajectories))


def _name(device: torch.device, dtype: torch.dtype) -> str:
    return f"{device.type}_{str(dtype).removeprefix('torch.')}"


# --- all of it ------------------------------------------------------------------------------------------------


def attempt(section: Callable[[Path, Scale, float], dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What the section found, or the error: time on a GPU is short, and one failure must not cost the rest."""
    start = time.perf_counter()
    try:
        found = section(*args)
    except Exception:
        found = {"failed": traceback.format_exc()}
    return found | {"seconds_in_all": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path(os.environ.get("OUT", "runs")))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--smollm2", type=Path, help="SmolLM2's converted directory")
    parser.add_argument("--budget", type=float, default=330.0, help="seconds in all")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="of every completion")
    parser.add_argument("--micro-batch", type=int, default=32768, help="tokens of a micro-batch on the GPU")
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()  # a stop token outside the vocabulary is warned of, and wanted
    scale = Scale(torch.device(args.device), args.prompts, args.group_size, args.tokens, args.micro_batch)
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else None
    results: dict[str, Any] = {
        "machine": {"gpu": gpu, "threads": torch.get_num_threads(), **versions},
        "scale": {name: str(value) for name, value in dataclasses.asdict(scale).items()},
    }
    print(results, flush=True)
    started = time.perf_counter()
    writers: dict[str, tuple[float, Callable[[Path], None] | None]] = {
        "builtin": (0.2, write_builtin),
        "llama": (0.25, write_llama),
        "smollm2": (0.55, write_copy(args.smollm2) if args.smollm2 is not None and args.smollm2.is_dir() else None),
    }
    with tempfile.TemporaryDirectory() as temporary:
        for policy, (share, write) in writers.items():
            if write is not None:
                write(Path(temporary) / policy)
            for section in (influence, grpo):
                name = f"{section.__name__}, {policy}"
                left_s = args.budget - (time.perf_counter() - started)
                budget_s = share * args.budget / 2
                if write is None:
                    results[name] = {"skipped": f"--smollm2 {args.smollm2}: no such directory"}
                elif left_s < budget_s / 2:
                    results[name] = {"skipped": f"{left_s:.0f} s are left of {args.budget:.0f}, wanted {budget_s:.0f}"}
                else:
                    results[name] = attempt(section, Path(temporary) / policy, scale, min(budget_s, left_s))
                print(f"{name}: {results[name]}", flush=True)
                write_json(args.out / "gpu_check.json", results)
    if any("failed" in result for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
