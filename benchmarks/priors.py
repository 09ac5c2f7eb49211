"""What priors and the drift detector are worth: `python benchmarks/priors.py [--seeds 5]`.

The posterior sampler walks through pools whose pass rates are known, G = 8, 16 groups a step, and every group is
drawn from them. `cold start`: pools without any history. `drift`: a pool with a history, after which the policy
improves in one leap, steadily, or not at all. Writes benchmarks/results/priors.json. The built-in policy rolls out
800 chains once (minutes); `--cache` keeps what it made of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from priors_worlds import World, chains, simulated
from rich.console import Console
from rich.table import Table

from pipeline_lib.config import ClusterPrior, DriftDetector, PosteriorSampler, PredictorPrior
from pipeline_lib.sampling import Observation, make_sampler
from pipeline_lib.sampling.posterior import Posterior
from pipeline_lib.sampling.priors import PoolPrior, make_prior

GROUP_SIZE = 8
GROUPS_A_STEP = 16
FIRST = 160
WANTED_MIXED = 100
CPU = torch.device("cpu")
Drawn = Callable[[str, int], int]
"""(prompt id, step) -> correct completions of a group."""


def draws(rate: Callable[[str, int], float], seed: int) -> Drawn:
    """The same group of the same prompt in the same step, whoever asks for it."""

    def draw(prompt_id: str, step: int) -> int:
        rng = np.random.default_rng([seed, step, int(prompt_id, 16)])
        return int(rng.binomial(GROUP_SIZE, rate(prompt_id, step)))

    return draw


def group_of(prompt_id: str, n_correct: int) -> Observation:
    return Observation(prompt_id, GROUP_SIZE, n_correct, 0 < n_correct < GROUP_SIZE)


def log_loss(predicted: list[float], rates: list[float]) -> float:
    """Expected nats of one completion."""
    p, q = np.clip(np.array(predicted), 1e-3, 1 - 1e-3), np.array(rates)
    return float(-(q * np.log(p) + (1 - q) * np.log(1 - p)).mean())


def cold_start(world: World, config: PosteriorSampler, seed: int) -> dict[str, float]:
    prior = make_prior(config, world.new, seed=seed, device=CPU)
    sampler = make_sampler(config, [p.prompt_id for p in world.new], [], seed, group_size=GROUP_SIZE, prior=prior)
    assert isinstance(sampler, Posterior)
    draw = draws(lambda prompt_id, _: world.rates[prompt_id], seed)
    seen: dict[str, int] = {}
    predicted, running, mixed = [], [], 0
    groups_until_wanted = 0
    step = 0
    while len(seen) < FIRST or mixed < WANTED_MIXED:
        kept = [d.prompt_id for d in sampler.propose(GROUPS_A_STEP) if d.keep]
        observations = [group_of(p, draw(p, step)) for p in kept]
        mean = (sum(seen.values()) + 1) / (GROUP_SIZE * len(seen) + 2)
        for o in observations:
            if o.prompt_id not in seen and len(seen) < FIRST:
                predicted.append(sampler.posterior(o.prompt_id).mean)
                running.append(mean)
                seen[o.prompt_id] = o.n_correct
            if mixed < WANTED_MIXED:
                groups_until_wanted += 1
                mixed += o.outcome == "mixed"
        sampler.observe(observations)
        sampler.end_step()
        step += 1
    rates = [world.rates[p] for p in seen]
    return {
        "mixed_share": statistics.fmean(0 < k < GROUP_SIZE for k in seen.values()),
        "log_loss": log_loss(predicted, rates),
        "log_loss_of_the_true_rates": log_loss(rates, rates),
        "excess": log_loss(predicted, rates) - log_loss(rates, rates),
        "excess_of_the_running_mean": log_loss(running, rates) - log_loss(rates, rates),
        "rollouts_for_100_mixed": float(GROUP_SIZE * groups_until_wanted),
    }


def warm_file(world: World, directory: Path, seed: int) -> str:
    """One group of each prompt of the old task, as a finished stage leaves them."""
    draw = draws(lambda prompt_id, _: world.rates[prompt_id], seed)
    prior = PoolPrior(PredictorPrior(), world.old, seed=seed, device=CPU)
    prior.observe([group_of(p.prompt_id, draw(p.prompt_id, 0)) for p in world.old])
    prior.save(directory / f"{seed}.jsonl")
    return str(directory / f"{seed}.jsonl")


def drift(world: World, config: PosteriorSampler, seed: int, moved: Callable[[int], float]) -> dict[str, float]:
    """60 steps after a history of four groups a prompt; `moved(step)` is added to every log odds."""

    def rate(prompt_id: str, step: int) -> float:
        p = min(max(world.rates[prompt_id], 0.005), 0.995)
        return 1 / (1 + math.exp(-math.log(p / (1 - p)) - (moved(step) if step >= 0 else 0.0)))

    draw = draws(rate, seed)
    ids = [p.prompt_id for p in world.new]
    before = np.random.default_rng([seed, 99])
    history = [group_of(p, int(before.binomial(GROUP_SIZE, rate(p, -1)))) for _ in range(4) for p in ids]
    sampler = make_sampler(config, ids, history, seed, group_size=GROUP_SIZE)
    assert isinstance(sampler, Posterior)
    outcomes, predicted, rates = [], [], []
    for step in range(60):
        kept = [d.prompt_id for d in sampler.propose(GROUPS_A_STEP) if d.keep]
        observations = [group_of(p, draw(p, step)) for p in kept]
        outcomes += [o.outcome == "mixed" for o in observations]
        sampler.observe(observations)
        sampler.end_step()
        predicted += [sampler.posterior(p).mean for p in ids]
        rates += [rate(p, step) for p in ids]
    return {
        "mixed_share": statistics.fmean(outcomes),
        "log_loss_of_the_pool": log_loss(predicted, rates),
        "excess": log_loss(predicted, rates) - log_loss(rates, rates),
        "alarms": sampler.metrics().get("drift_alarms", 0.0),
    }


MOVES: dict[str, Callable[[int], float]] = {
    "nothing": lambda step: 0.0,
    "a leap of 2 at step 10": lambda step: 2.0 * (step >= 10),
    "0.05 a step": lambda step: 0.05 * step,
}


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard error over seeds."""
    return {
        key: [
            statistics.fmean(run[key] for run in runs),
            statistics.stdev(run[key] for run in runs) / math.sqrt(len(runs)),
        ]
        for key in runs[0]
    }


def show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v[0]:.3f} ± {v[1]:.3f}" for v in row.values()))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path("build/priors-chains.json"))
    arguments = parser.parse_args()
    started = time.perf_counter()
    console = Console(width=150)
    seeds = range(arguments.seeds)
    measured = chains(arguments.cache)
    worlds: dict[str, Callable[[int], World]] = {"simulated": simulated, "chains": lambda _: measured}
    cold_rows, drift_rows = [], []
    with tempfile.TemporaryDirectory() as directory:
        for name, world_of in worlds.items():
            by_prior: dict[str, list[dict[str, float]]] = {}
            for seed in seeds:
                world = world_of(seed)
                configs = {
                    "none": PosteriorSampler(),
                    "predictor": PosteriorSampler(prior=PredictorPrior(refit_every=2)),
                    "clusters": PosteriorSampler(prior=ClusterPrior(refit_every=2)),
                    "predictor, warm": PosteriorSampler(
                        prior=PredictorPrior(refit_every=2, warm_start=warm_file(world, Path(directory), seed))
                    ),
                    "drift detector": PosteriorSampler(drift=DriftDetector()),
                }
                for prior, config in configs.items():
                    by_prior.setdefault(prior, []).append(cold_start(world, config, seed))
            cold_rows += [{"pool": name, "prior": prior} | summary(runs) for prior, runs in by_prior.items()]
    show(console, "Without a history", cold_rows)
    for move, moved in MOVES.items():
        for detector in (None, DriftDetector()):
            config = PosteriorSampler(drift=detector)
            runs = [drift(simulated(seed), config, seed, moved) for seed in seeds]
            drift_rows.append({"log odds move by": move, "detector": "on" if detector else "off"} | summary(runs))
    show(console, "With a history, simulated pool", drift_rows)
    result = {
        "seeds": arguments.seeds,
        "group_size": GROUP_SIZE,
        "groups_a_step": GROUPS_A_STEP,
        "first": FIRST,
        "seconds": time.perf_counter() - started,
        "cold_start": cold_rows,
        "drift": drift_rows,
    }
    path = Path(__file__).parent / "results" / "priors.json"
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
