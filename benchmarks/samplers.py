"""What each sampler takes to reach the accuracy that dynamic sampling ends with, on the built-in policy.

    PYTHONPATH=. .venv/bin/python benchmarks/samplers.py run runs/samplers      # about an hour on two cores
    PYTHONPATH=. .venv/bin/python benchmarks/samplers.py table runs/samplers    # of what there is

Runs that are there are not made again, so it goes on where it was stopped. One thread a run, as many at once as there
are cores; seconds are the run's own processor time, evaluations left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table

from pipeline_lib.config import (
    ChainSource,
    DynamicSampler,
    Generation,
    GresoSampler,
    Pid,
    PosteriorSampler,
    Sampler,
    Train,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.grpo.backends import make_backend
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.policy import load_policy, policy_id_of
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import Engine, Rollout, SamplingParams, TransformersEngine, roll_out
from pipeline_lib.sampling import Observation, make_sampler

SAMPLERS: dict[str, Sampler] = {
    "dynamic": DynamicSampler(),
    "uniform": UniformSampler(),
    "greso": GresoSampler(),
    "greso, pid": GresoSampler(controller=Pid()),
    "posterior": PosteriorSampler(),
    "variance_sigmoid": VarianceSigmoidSampler(),
}
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class World:
    """Shares of a pool with their chains, and the longest completion there may be."""

    shares: list[tuple[float, list[str], list[int]]]
    max_tokens: int


WORLDS = {
    # A third of the groups are zero-variance at the start.
    "mild": World(
        [(0.40, ["plus", "times"], [2]), (0.35, ["minus"], [4, 5, 6]), (0.25, ["mixed", "max"], [2, 3, 4])], 40
    ),
    # Two thirds are: easy chains that are soon always right, and chains of 5 and 6 operations, whose answers do not fit
    # into 22 tokens, so that none is ever right.
    "extreme": World(
        [(0.40, ["plus", "times"], [2]), (0.35, ["minus", "mixed"], [5, 6]), (0.25, ["minus", "max"], [2, 3])], 22
    ),
}

K = 8
EVALUATE_EVERY = 5
HELD_OUT, ANSWERS = 240, 4


def generation(world: str) -> Generation:
    return Generation(max_tokens=WORLDS[world].max_tokens, max_prompt_tokens=32, batch_size=1024)


def chains(world: str, count: int, seed: int) -> list[Prompt]:
    sources = [
        ChainSource(kinds=kinds, lengths=lengths, count=round(share * count), seed=seed)  # type: ignore[arg-type]
        for share, kinds, lengths in WORLDS[world].shares
    ]
    return list({prompt.prompt_id: prompt for source in sources for _, prompt in read_chains(source)}.values())


def train_config(sampler: Sampler, steps: int) -> Train:
    return Train(
        steps=steps,
        prompts_per_step=32,
        group_size=K,
        learning_rate=2e-4,
        tokens_per_micro_batch=16384,
        sampler=sampler,
        checkpoint_every=10_000,
    )


def one_run(root: Path, world: str, name: str, seed: int, steps: int, pool_size: int) -> None:
    """Train with one sampler, and evaluate as it goes; the curve is written to `root`."""
    torch.set_num_threads(1)
    policy = load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32, trainable=True)
    pool = chains(world, pool_size, seed=1)
    held_out = [p for p in chains(world, HELD_OUT, seed=2) if p.prompt_id not in {q.prompt_id for q in pool}]
    by_id = {prompt.prompt_id: prompt for prompt in pool}
    engine = TransformersEngine(policy)
    params, answers = (SamplingParams.of(generation(world), n) for n in (K, ANSWERS))
    train = train_config(SAMPLERS[name], steps)
    directory = root / f"{name.replace(', ', '-')}-{seed}"
    shutil.rmtree(directory, ignore_errors=True)  # what a killed run has left would be resumed, its cost not counted
    curve: list[dict[str, float]] = []
    began, measuring = time.process_time(), 0.0
    with Grader() as grader:

        def roll(prompt_ids: Sequence[str], number: int) -> Rollout:
            return roll_out(policy, engine, grader.grade, [by_id[i] for i in prompt_ids], params, seed * 10**6 + number)

        trainer = Trainer(
            backend=make_backend(train, Trained(policy), 1.0, Ranks()),
            policy_id=policy_id_of(BUILTIN_DIRECTORY),
            reference=None,
            sampler=make_sampler(train.sampler, list(by_id), history_of(root), seed, group_size=K),
            roll_out=roll,
            config=train,
            max_tokens=WORLDS[world].max_tokens,
            directory=directory,
        )

        def measure() -> None:
            nonlocal measuring
            started = time.process_time()
            rollout = roll_out(policy, engine, grader.grade, held_out, answers, seed=99)
            right = [g.n_correct / len(g.trajectories) for g in rollout.groups]
            seconds = started - began - measuring
            curve.append({"step": trainer.step, "accuracy": statistics.fmean(right), "seconds": seconds})
            measuring += time.process_time() - started

        ended_early = trainer.train(lambda: measure() if trainer.step % EVALUATE_EVERY == 0 else None)
        measure()
    rows = [
        pq.read_table(file).to_pylist()[0]
        for file in sorted((directory / "records").glob("step-*/train_steps.parquet"))
    ]
    for name_of_sum, column in (("rollouts", "rollouts"), ("tokens", "generated_tokens")):
        sums = [0, *itertools.accumulate(row[column] for row in rows)]
        for point in curve:
            point[name_of_sum] = sums[int(point["step"])]
    mixed = sum(row["solved_some"] for row in rows) / sum(row["prompts_rolled_out"] for row in rows)
    skipped = sum(row["prompts_skipped"] for row in rows) / sum(row["prompts_proposed"] for row in rows)
    result = {"curve": curve, "mixed share": mixed, "skipped share": skipped, "ended_early": ended_early}
    directory.with_suffix(".json").write_text(json.dumps(result))


def history_of(root: Path) -> list[Observation]:
    return [Observation(*row) for row in json.loads((root / "history.json").read_text())]


def collect_history(root: Path, world: str, pool_size: int) -> None:
    """What the warehouse knows of the pool before a stage: K rollouts a prompt of the policy that it starts from."""
    if (root / "history.json").exists():
        return
    policy = load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32)
    engine: Engine = TransformersEngine(policy)
    with Grader() as grader:
        rollout = roll_out(
            policy,
            engine,
            grader.grade,
            chains(world, pool_size, seed=1),
            SamplingParams.of(generation(world), K),
            seed=7,
        )
    rows = [Observation.of(group) for group in rollout.groups]
    (root / "history.json").write_text(json.dumps(rows))


def run_all(root: Path, world: str, seeds: int, steps: int, pool_size: int, samplers: Sequence[str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    collect_history(root, world, pool_size)
    print("offline outcomes:", Counter(o.outcome for o in history_of(root)), flush=True)
    waiting = [
        # A step of uniform takes fewer rollouts, so it gets more of them.
        [name, str(seed), str(3 * steps // 2 if name == "uniform" else steps)]
        for seed in range(seeds)
        for name in samplers
        if not (root / f"{name.replace(', ', '-')}-{seed}.json").exists()
    ]
    running: list[tuple[list[str], subprocess.Popen[bytes]]] = []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            job = waiting.pop(0)
            command = [sys.executable, __file__, "one", str(root), world, *job, str(pool_size)]
            running.append((job, subprocess.Popen(command, env=environment)))
        for job, process in list(running):
            if process.poll() is not None:
                assert process.returncode == 0, job
                running.remove((job, process))
                print("done:", *job, flush=True)
        time.sleep(0.2)


def smoothed(curve: list[dict[str, float]]) -> list[float]:
    """Mean of an accuracy and the one before: the noise of so few answers is half as large."""
    values = [point["accuracy"] for point in curve]
    return [values[0], *((a + b) / 2 for a, b in itertools.pairwise(values))]


def mean_and_error(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    digits = 3 if max(values) < 10 else 0
    return f"{statistics.fmean(values):,.{digits}f} ± {error:,.{digits}f}"


def table(root: Path, world: str) -> None:
    runs: dict[str, list[dict[str, Any]]] = {
        name: [json.loads(f.read_text()) for f in sorted(root.glob(f"{name.replace(', ', '-')}-?.json"))]
        for name in SAMPLERS
    }
    target = statistics.fmean(smoothed(run["curve"])[-1] for run in runs["dynamic"])
    summary: dict[str, dict[str, Any]] = {}
    for name, of_sampler in runs.items():
        if not of_sampler:
            continue
        reached = [
            next((p for p, a in zip(run["curve"], smoothed(run["curve"]), strict=True) if a >= target), None)
            for run in of_sampler
        ]
        points = [point for point in reached if point is not None]
        summary[name] = {
            "runs": len(of_sampler),
            "reached": len(points),
            "mixed share": statistics.fmean(run["mixed share"] for run in of_sampler),
            "skipped share": statistics.fmean(run["skipped share"] for run in of_sampler),
            "final accuracy": [smoothed(run["curve"])[-1] for run in of_sampler],
            "all rollouts": [run["curve"][-1]["rollouts"] for run in of_sampler],
            "all seconds": [run["curve"][-1]["seconds"] for run in of_sampler],
        } | {f"{what} to target": [point[what] for point in points] for what in ("rollouts", "tokens", "seconds")}
    base = statistics.fmean(summary["dynamic"]["rollouts to target"]) if summary["dynamic"]["reached"] else None
    shown = Table("sampler", "reached", "rollouts", "÷ dynamic", "tokens", "seconds", "mixed", "skipped", "final, %")
    for name, row in summary.items():
        rollouts = row["rollouts to target"]
        shown.add_row(
            name,
            f"{row['reached']} of {row['runs']}",
            mean_and_error(rollouts) if rollouts else "–",
            f"{statistics.fmean(rollouts) / base:.2f}" if rollouts and base else "–",
            mean_and_error(row["tokens to target"]) if rollouts else "–",
            mean_and_error(row["seconds to target"]) if rollouts else "–",
            f"{row['mixed share']:.2f}",
            f"{row['skipped share']:.2f}",
            mean_and_error([100 * a for a in row["final accuracy"]]),
        )
    Console(width=150).print(f"target accuracy {target:.4f}", shown)
    path = RESULTS / f"samplers-{world}.json"
    path.write_text(json.dumps({"target accuracy": target, "samplers": summary}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("root", type=Path)
    run.add_argument("--world", choices=WORLDS, default="extreme")
    run.add_argument("--seeds", type=int, default=5)
    run.add_argument("--steps", type=int, default=40)
    run.add_argument("--pool", type=int, default=2000)
    run.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    of = commands.add_parser("table")
    of.add_argument("root", type=Path)
    of.add_argument("--world", choices=WORLDS, default="extreme")
    one = commands.add_parser("one")
    one.add_argument("root", type=Path)
    one.add_argument("world", choices=WORLDS)
    one.add_argument("name", choices=SAMPLERS)
    for number in ("seed", "steps", "pool"):
        one.add_argument(number, type=int)
    arguments = parser.parse_args()
    if arguments.command == "one":
        one_run(arguments.root, arguments.world, arguments.name, arguments.seed, arguments.steps, arguments.pool)
        return
    if arguments.command == "run":
        run_all(arguments.root, arguments.world, arguments.seeds, arguments.steps, arguments.pool, arguments.samplers)
    table(arguments.root, arguments.world)


if __name__ == "__main__":
    main()
