"""What orchestration and the warehouse take of a run, what a second run takes, and how soon `rlsift status` answers.

    PYTHONPATH=. .venv/bin/python benchmarks/orchestration.py configs/smollm2_cpu.yaml runs/orchestration

The run is `rlsift run` itself, in a process whose clock is read where a step's work begins and ends and where the
warehouse is called. All that is not provably work counts as orchestration: a stage's time is from the end of the last
work of the stage before to the end of its own last work, and of that only what was spent in `work`, less the calls to
the warehouse from within it, is work. Prefect, locks, records, snapshots, and waiting for them are the rest. What
the training process takes beside its steps (its start, checkpoints, saving the policy) is work, and told apart as well.
The directory is emptied first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from machine import processor

from warehouse import Warehouse

RESULTS = Path(__file__).parent / "results" / "orchestration.json"
NEVER_BY_STATUS = ("pandas", "prefect", "torch", "transformers")


class Clock:
    """Of one process: every piece of work with the seconds of it that the warehouse took."""

    def __init__(self) -> None:
        self.work: list[dict[str, Any]] = []
        self._warehouse = 0.0
        self._depth = 0

    def works(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(step: Any, at: Any) -> Any:
            before, started = self._warehouse, time.time()
            try:
                return method(step, at)
            finally:
                self.work.append(
                    {
                        "stage": step.stage,
                        "step": step.name,
                        "started": started,
                        "ended": time.time(),
                        "warehouse": self._warehouse - before,
                    }
                )

        return timed

    def warehouse(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1  # named_query calls publish
            started = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._warehouse += time.perf_counter() - started

        return timed


def run_with_a_clock(config: str, root: str, told: Path) -> None:
    """`rlsift run` in this process; its work is told to the file."""
    from flows import chain
    from flows.cli import app
    from tasks.step import Step

    assert chain.TrainStage  # every kind of step is known by now
    clock = Clock()
    kinds = [Step]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind is not Step and "work" in vars(kind):
            kind.work = clock.works(kind.work)  # type: ignore[method-assign]
    for name in ("write", "query", "publish", "keep_run_steps", "snapshot_query", "named_query"):
        setattr(Warehouse, name, clock.warehouse(getattr(Warehouse, name)))
    try:
        app(["run", config, "--root", root], standalone_mode=False)
    finally:
        told.write_text(json.dumps(clock.work))


def seconds_of(*arguments: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def shares(work: list[dict[str, Any]], started: float) -> list[dict[str, Any]]:
    """By stage; stage 0 begins with the process."""
    found = []
    begins = started
    for stage in sorted({piece["stage"] for piece in work}):
        own = [piece for piece in work if piece["stage"] == stage]
        ends = max(piece["ended"] for piece in own)
        at_work = sum(piece["ended"] - piece["started"] for piece in own)
        in_warehouse = sum(piece["warehouse"] for piece in own)
        whole = ends - begins
        found.append(
            {
                "stage": stage,
                "seconds": round(whole, 2),
                "outside of work": round(whole - at_work, 2),
                "warehouse within work": round(in_warehouse, 2),
                "share": round((whole - at_work + in_warehouse) / whole, 4),
            }
        )
        begins = ends
    return found


def beside_training_steps(work: list[dict[str, Any]], root: str) -> dict[str, float]:
    """By stage, the seconds of the training step that none of its updates took."""
    sql = "SELECT stage, sum(step_time) AS seconds FROM train_steps JOIN run_steps USING (fingerprint) GROUP BY ALL"
    in_steps = {row["stage"]: row["seconds"] for row in Warehouse(Path(root)).snapshot_query(sql).to_pylist()}
    trained = [piece for piece in work if piece["step"] == "train"]
    return {str(p["stage"]): round(p["ended"] - p["started"] - in_steps[p["stage"]], 1) for p in trained}


def imported_by_status(root: str) -> list[str]:
    """Which of the heavy packages `rlsift status` imports."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "flows.cli", "status", "--root", root],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.splitlines()}
    return sorted(modules.intersection(NEVER_BY_STATUS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("root")
    parser.add_argument("--repeats", type=int, default=5, help="Of the second run and of status.")
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.told is not None:
        run_with_a_clock(arguments.config, arguments.root, arguments.told)
        return
    shutil.rmtree(arguments.root, ignore_errors=True)
    told = Path(arguments.root).with_suffix(".work.json").absolute()
    started = time.time()
    first = seconds_of(__file__, arguments.config, arguments.root, "--told", str(told))
    work = json.loads(told.read_text())
    told.unlink()
    run = ["-m", "flows.cli", "run", arguments.config, "--root", arguments.root]
    second = [seconds_of(*run) for _ in range(arguments.repeats)]
    status = [seconds_of("-m", "flows.cli", "status", "--root", arguments.root) for _ in range(arguments.repeats)]
    outcome = {
        "config": arguments.config,
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "stages": shares(work, started),
        "seconds of training beside its steps, by stage": beside_training_steps(work, arguments.root),
        "first run": round(first, 1),
        "second run": round(statistics.median(second), 2),
        "second run, share of the first": round(statistics.median(second) / first, 4),
        "status": round(statistics.median(status), 2),
        "status, slowest": round(max(status), 2),
        "status imports": imported_by_status(arguments.root),
    }
    RESULTS.write_text(json.dumps(outcome, indent=2) + "\n")
    print(json.dumps(outcome, indent=2))


if __name__ == "__main__":
    main()
