"""Does selection pay? Pools times ways to choose times seeds, on the built-in policy.

    PYTHONPATH=. .venv/bin/python benchmarks/curriculum.py run runs/curriculum --seeds 5
    PYTHONPATH=. .venv/bin/python benchmarks/curriculum.py table runs/curriculum

It takes hours, goes on where it was stopped, and shows a table of what there is at any time. Every arm begins with the
same policy, and with the same rollouts of the pool where it wants any: their cost is counted as its own. Arms with one
seed have the same pool, validation and evaluation prompts, so differences are paired. A run is one process with one
thread; as many at once as `--processes` says. Files of runs that were made before (results/curriculum/*.json) count
where they are copied to the directory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from curriculum_arms import ARMS
from curriculum_run import is_done, result_path, run
from curriculum_worlds import WORLDS, WorldName
from machine import processor
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "curriculum.json"
FULL = ("full", "full 16")
"""What costs are compared with: the full pool, at the batch size of the other arms and at half of it."""
EQUAL_STEPS = 50
"""Where arms are compared step by step: half way, before most have come to where they end. At equal cost they are where
the full pool has made its last step."""
RISE = 0.9
"""Share of the way from the start to the full pool's best, which itself is reached late and by chance."""
Curves = dict[int, list[dict[str, float]]]
"""By seed, what each look at the policy under training has shown."""


def run_all(arguments: argparse.Namespace) -> None:
    """Seed by seed, so that whatever is there when it is stopped can be compared."""
    root: Path = arguments.root
    root.mkdir(parents=True, exist_ok=True)
    waiting = [
        (world, arm, seed)
        for seed, world, arm in itertools.product(range(arguments.seeds), arguments.worlds, arguments.arms)
        if not is_done(root, world, arm, seed)
    ]
    running: dict[tuple[str, str, int], subprocess.Popen[bytes]] = {}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    numbers = [f"--{name}={getattr(arguments, name)}" for name in ("stages", "steps", "pool")]
    while waiting or running:
        # The rollouts that all arms of a pool begin with are made by the first that wants them.
        busy = {(world, seed) for world, _, seed in running if not (root / f"{world}-{seed}" / "pool.seconds").exists()}
        free = next((job for job in waiting if (job[0], job[2]) not in busy), None)
        if free is not None and len(running) < arguments.processes:
            waiting.remove(free)
            world, arm, seed = free
            command = [sys.executable, __file__, "one", str(root), world, arm, str(seed), *numbers]
            running[free] = subprocess.Popen(command, env=environment)
            continue
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                print("done:" if process.returncode == 0 else "FAILED:", *job, flush=True)
        time.sleep(0.5)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def accuracy_at(curve: list[dict[str, float]], what: str, limit: float) -> float:
    """Targeted accuracy when `what` (step, forwards, seconds) has come to the limit; the mean of the last two looks."""
    reached = [point["targeted"] for point in curve if point[what] <= limit * 1.001]
    return statistics.fmean(reached[-2:])


def spent_to(curve: list[dict[str, float]], accuracy: float, what: str) -> float | None:
    """What it took until the mean of two looks in a row was there; None where it never was."""
    for before, point in itertools.pairwise(curve):
        if (before["targeted"] + point["targeted"]) / 2 >= accuracy:
            return point[what]
    return None


def summary(root: Path) -> dict[str, dict[str, Any]]:
    """By world and arm, over the seeds that there are."""
    found: dict[str, dict[str, Any]] = {}
    for world in WORLDS:
        runs = {arm: {r["seed"]: r for r in _results(root, world, arm)} for arm in ARMS}
        curves = {arm: {seed: r["curve"] for seed, r in by_seed.items()} for arm, by_seed in runs.items()}
        budgets = {seed: curve[-1]["forwards"] for seed, curve in curves["full"].items()}
        at_steps = {
            arm: {seed: accuracy_at(curve, "step", EQUAL_STEPS) for seed, curve in by_seed.items()}
            for arm, by_seed in curves.items()
        }
        at_cost = {
            arm: {seed: accuracy_at(by_seed[seed], "forwards", budgets[seed]) for seed in by_seed.keys() & budgets}
            for arm, by_seed in curves.items()
        }
        for arm, by_seed in runs.items():
            if not by_seed:
                continue
            found.setdefault(world, {})[arm] = {
                "seeds": len(by_seed),
                "start": mean_and_error([r["curve"][0]["targeted"] for r in by_seed.values()]),
                "targeted at equal steps": mean_and_error(list(at_steps[arm].values())),
                "targeted at equal cost": mean_and_error(list(at_cost[arm].values())) if at_cost[arm] else None,
                "untargeted": mean_and_error([r["curve"][-1]["untargeted"] for r in by_seed.values()]),
                "minus learnability": minus(at_steps[arm], at_steps["learnability"]),
                "minus learnability, equal cost": minus(at_cost[arm], at_cost["learnability"]),
                "minus full, equal cost": minus(at_cost[arm], at_cost["full"]),
                "cheaper": {
                    full: {
                        f"{share:.0%}": times_cheaper(curves[full], curves[arm], share) for share in (0.5, RISE, 1.0)
                    }
                    for full in FULL
                },
                "wrong golds": statistics.fmean(s["wrong golds"] for r in by_seed.values() for s in r["stages"]),
                "zero variance": statistics.fmean(s["zero variance"] for r in by_seed.values() for s in r["stages"]),
                "forwards before training": statistics.fmean(
                    r["forwards"].get("collect", 0) + r["forwards"].get("score", 0) for r in by_seed.values()
                ),
                "forwards": statistics.fmean(sum(r["forwards"].values()) for r in by_seed.values()),
                "seconds": mean_and_error([r["seconds"] for r in by_seed.values()]),
            }
    return found


def minus(own: dict[int, float], other: dict[int, float]) -> tuple[float, float] | None:
    """The mean difference over the seeds that both have; None where there are none."""
    differences = [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]
    return mean_and_error(differences) if differences else None


def times_cheaper(full: Curves, own: Curves, share: float) -> dict[str, Any] | None:
    """How many times the cost of `own` the full pool needs to come `share` of the way to its best accuracy.

    Over the seeds that both have; `reached` counts those that came there at all. In forwards and in seconds.
    """
    paired = sorted(full.keys() & own.keys())
    ratios: dict[str, list[float]] = {"forwards": [], "seconds": []}
    for seed in paired:
        start, best = full[seed][0]["targeted"], max(_smoothed(full[seed]))
        wanted = min(best, start + share * (best - start))
        for what, found in ratios.items():
            spent, own_spent = (spent_to(curve[seed], wanted, what) for curve in (full, own))
            if spent is not None and own_spent is not None:
                found.append(spent / own_spent)
    if not paired:
        return None
    return {"of": len(paired), "reached": len(ratios["forwards"])} | {
        what: mean_and_error(found) if found else None for what, found in ratios.items()
    }


def _smoothed(curve: list[dict[str, float]]) -> list[float]:
    return [(a["targeted"] + b["targeted"]) / 2 for a, b in itertools.pairwise(curve)]


def _results(root: Path, world: str, arm: str) -> list[dict[str, Any]]:
    # "full" begins the name of "full 16" as well.
    found = [json.loads(path.read_text()) for path in sorted(root.glob(result_path(root, world, arm, "*").name))]
    return [result for result in found if result["arm"] == arm and result["settings"] == repr(ARMS[arm])]


def show(found: dict[str, dict[str, Any]]) -> None:
    console = Console(width=200)

    def words(pair: tuple[float, float] | None, scale: float = 100, digits: int = 1) -> str:
        return "–" if pair is None else f"{scale * pair[0]:.{digits}f} ± {scale * pair[1]:.{digits}f}"

    def cheaper(row: dict[str, Any], full: str, share: float) -> str:
        ratio = row["cheaper"][full][f"{share:.0%}"]
        if ratio is None or ratio["forwards"] is None:
            return "–"
        return f"{words(ratio['forwards'], 1, 2)} ({ratio['reached']}/{ratio['of']})"

    for world, arms in found.items():
        start = words(next(iter(arms.values()))["start"])
        table = Table(title=f"{world}: targeted accuracy from {start} %")
        for column in (
            "arm",
            "seeds",
            "targeted, %",
            "− learnability",
            "at full's cost",
            "− learnability",
            *(f"× cheaper than {full}, {share:.0%}" for full in FULL for share in (RISE, 1.0)),
            "untargeted",
            "wrong",
            "zero var.",
            "M forwards, before training",
        ):
            table.add_column(column)
        for arm, row in arms.items():
            table.add_row(
                arm,
                str(row["seeds"]),
                words(row["targeted at equal steps"]),
                words(row["minus learnability"]),
                words(row["targeted at equal cost"]),
                words(row["minus learnability, equal cost"]),
                *(cheaper(row, full, share) for full in FULL for share in (RISE, 1.0)),
                words(row["untargeted"]),
                f"{row['wrong golds']:.2f}",
                f"{row['zero variance']:.2f}",
                f"{row['forwards'] / 1e6:.2f}, {row['forwards before training'] / 1e6:.2f}",
            )
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    several = commands.add_parser("run")
    several.add_argument("root", type=Path)
    several.add_argument("--seeds", type=int, default=5)
    several.add_argument("--worlds", nargs="+", choices=get_args(WorldName), default=list(WORLDS))
    several.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    several.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    one = commands.add_parser("one")
    one.add_argument("root", type=Path)
    one.add_argument("world", choices=get_args(WorldName))
    one.add_argument("arm", choices=ARMS)
    one.add_argument("seed", type=int)
    for command in (several, one):
        command.add_argument("--stages", type=int, default=4)
        command.add_argument("--steps", type=int, default=25, help="of a stage")
        command.add_argument("--pool", type=int, default=2000)
    shown = commands.add_parser("table")
    shown.add_argument("root", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "one":
        run(
            arguments.root,
            arguments.world,
            arguments.arm,
            arguments.seed,
            stages=arguments.stages,
            steps=arguments.steps,
            pool_size=arguments.pool,
        )
        return
    if arguments.command == "run":
        run_all(arguments)
    found = summary(arguments.root)
    show(found)
    RESULTS.write_text(json.dumps({"processor": processor(), "worlds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
