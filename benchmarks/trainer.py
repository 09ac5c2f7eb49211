"""A GRPO step of rlsift beside one of TRL's GRPOTrainer: benchmarks/trainer.md says what is counted.

    python benchmarks/trainer.py run DIR --trl-python TRL/bin/python      # everything, one process after the other
    python benchmarks/trainer.py table DIR                                # again from DIR, and results/trainer.json

DIR gets policies, settings and what each process measured; what is recorded there is not run again, so that a
second command can add SmolLM2 at another size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import processor
from rich.console import Console
from rich.table import Table
from trainer_policies import chain_prompts, write_builtin, write_copy, write_llama
from trainer_setting import Setting, write_json

from pipeline_lib.policy import collate, load_policy, token_logprobs
from pipeline_lib.records import Trajectory

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "trainer.json"
SIDES = ("rlsift", "trl")
CHECK_PROMPTS = 4
NOISE = 0.3
"""Standard deviation, in nats, of the behaviour log-probs given, about the policy's own: some ratios are clipped."""


def make(name: str, write_policy: Callable[[Path], None], directory: Path, args: argparse.Namespace) -> None:
    """Policy, prompts and the trajectories of the check of one case."""
    policy_directory = directory / name / "policy"
    write_policy(policy_directory)
    policy = load_policy(policy_directory, device=torch.device("cpu"), dtype=torch.float32)
    prompts = chain_prompts(args.prompts)
    tokens = args.completion_tokens
    longest = max(len(policy.encode(prompt.messages)) for prompt in prompts)
    generator = torch.Generator().manual_seed(0)
    check = []
    for prompt in prompts[:CHECK_PROMPTS]:
        for _ in range(args.group_size):
            length = int(torch.randint(tokens // 2, tokens + 1, (), generator=generator))
            completion = torch.randint(4, policy.model.config.vocab_size, (length,), generator=generator)
            check.append(_given(policy, tuple(policy.encode(prompt.messages)), tuple(completion.tolist()), generator))
    Setting(
        policy=str(policy_directory),
        prompts=[list(prompt.messages) for prompt in prompts],  # type: ignore[arg-type]
        group_size=args.group_size,
        completion_tokens=tokens,
        sequences_per_micro_batch=args.micro_batch,
        tokens_per_micro_batch=args.micro_batch * (longest + tokens),
        learning_rate=1e-6,
        steps=args.steps,
        threads=args.threads,
        check=check,
    ).write(directory / name / "setting.json")


def _given(policy: Any, prompt: tuple[int, ...], completion: tuple[int, ...], generator: Any) -> dict[str, list[Any]]:
    alone = Trajectory("", 0, prompt, completion, (0.0,) * len(completion), "length", "", 1.0, True, "ok")
    with torch.no_grad():
        batch = collate([alone], policy.pad_token_id, policy.device)
        logprobs_T = token_logprobs(policy, batch, temperature=1.0).logprobs_BT[0]
    noise_T = NOISE * torch.randn(len(completion), generator=generator)
    return {"prompt": list(prompt), "completion": list(completion), "logprobs": (logprobs_T + noise_T).tolist()}


def spawn(side: str, what: str, setting: Path, out: Path, args: argparse.Namespace) -> None:
    """One process of one side, alone on the machine. Raises CalledProcessError when it fails."""
    if out.exists():
        return
    python = sys.executable if side == "rlsift" else args.trl_python
    command = [python, str(HERE / f"trainer_{side}.py"), what, str(setting), str(out)]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(args.threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",  # a stop token outside the vocabulary is warned of, and wanted
    }
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    print(f"{out.name}: done", file=sys.stderr, flush=True)


def run(directory: Path, args: argparse.Namespace) -> None:
    """Rounds go rlsift, TRL, TRL, rlsift, ..., so that a machine that slows down slows both."""
    policies: dict[str, Callable[[Path], None]] = {"builtin": write_builtin, "llama": write_llama}
    if args.smollm2 is not None:
        policies["smollm2"] = write_copy(args.smollm2)
    for name, write_policy in policies.items():
        setting = directory / name / "setting.json"
        if not setting.exists():
            make(name, write_policy, directory, args)
        for side in SIDES:
            spawn(side, "check", setting, directory / name / f"check-{side}.json", args)
        for number in range(args.rounds):
            for side in SIDES if number % 2 == 0 else reversed(SIDES):
                spawn(side, "measure", setting, directory / name / f"measured-{side}-{number}.json", args)


# --- the table --------------------------------------------------------------------------------------------------


def summary(case: Path) -> dict[str, Any]:
    """Medians over all steps of all rounds; memory is the largest of the rounds."""
    setting = Setting.read(case / "setting.json")
    row: dict[str, Any] = {
        "policy": case.name,
        "sequences": f"{len(setting.prompts)} × {setting.group_size}",
        "completion_tokens": setting.completion_tokens,
        "sequences_per_micro_batch": setting.sequences_per_micro_batch,
        "tokens_per_micro_batch": setting.tokens_per_micro_batch,
    }
    for side in SIDES:
        rounds = [json.loads(path.read_text()) for path in sorted(case.glob(f"measured-{side}-*.json"))]
        timings = [key for key in rounds[0] if key.endswith("_s")]
        seconds = {key: [s for measured in rounds for s in measured[key]] for key in timings}
        row[side] = {
            **{key: statistics.median(values) for key, values in seconds.items()},
            **{f"{key[:-2]}_range_s": [min(values), max(values)] for key, values in seconds.items()},
            "memory_mib": max(measured["peak_mib"] - measured["loaded_mib"] for measured in rounds),
            "loaded_mib": rounds[0]["loaded_mib"],
            "measured_steps": len(seconds["total_s"]),
            **{key: rounds[0][key] for key in ("generated_tokens", "versions", "threads")},
        }
    ours, theirs = (json.loads((case / f"check-{side}.json").read_text()) for side in SIDES)
    row["check"] = {"rlsift": ours, "trl": theirs} | {
        f"{key}_relative_difference": abs(ours[key] - theirs[key]) / abs(theirs[key]) for key in ("loss", "grad_norm")
    }
    return row


def table(directory: Path) -> None:
    rows = [summary(path.parent) for path in sorted(directory.glob("*/setting.json"))]
    machine = {"processor": processor(), "torch": torch.__version__, "threads": rows[0]["rlsift"]["threads"]}
    write_json(RESULTS, {"machine": machine, "rows": rows})
    shown = Table(title=f"seconds a step; {machine['processor']}, {machine['threads']} threads")
    for column in ("policy", "sequences", "tokens", "", "rlsift", "TRL", "TRL ÷ rlsift"):
        shown.add_column(column)
    for row in rows:
        ours, theirs = row["rlsift"], row["trl"]
        lines = [(name, ours[f"{name}_s"], theirs[f"{name}_s"]) for name in ("rollout", "update", "total")]
        lines.append(("update, half without signal", ours["update_half_s"], theirs["update_s"]))
        lines.append(("peak memory, MiB", ours["memory_mib"], theirs["memory_mib"]))
        lines.append(("tokens generated", ours["generated_tokens"], theirs["generated_tokens"]))
        for number, (name, a, b) in enumerate(lines):
            first = (row["policy"], row["sequences"], str(row["completion_tokens"])) if number == 0 else ("", "", "")
            shown.add_row(*first, name, f"{a:.3g}", f"{b:.3g}", f"{b / a:.2f}", end_section=number == len(lines) - 1)
    console = Console(width=120)
    console.print(shown)
    for row in rows:
        check = row["check"]
        console.print(
            f"{row['policy']}: the same completions give loss {check['rlsift']['loss']:.6f} and "
            f"{check['trl']['loss']:.6f}, gradient norm {check['rlsift']['grad_norm']:.6f} and "
            f"{check['trl']['grad_norm']:.6f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("run", "table"):
        sub = commands.add_parser(command)
        sub.add_argument("directory", type=Path)
        if command == "run":
            sub.add_argument("--trl-python", required=True, help="the interpreter that has TRL")
            sub.add_argument("--smollm2", type=Path, help="a converted directory; left out when not given")
            sub.add_argument("--threads", type=int, default=2)
            sub.add_argument("--rounds", type=int, default=4, help="processes of each side")
            sub.add_argument("--steps", type=int, default=4, help="of a process; the first is a warm-up")
            sub.add_argument("--prompts", type=int, default=16)
            sub.add_argument("--group-size", type=int, default=8)
            sub.add_argument("--completion-tokens", type=int, default=64)
            sub.add_argument("--micro-batch", type=int, default=32, help="sequences; divides prompts × group size")
    args = parser.parse_args()
    if args.command == "run":
        run(args.directory, args)
    table(args.directory)


if __name__ == "__main__":
    main()
