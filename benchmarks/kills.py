"""A training stage killed with -9 at random moments, again and again, against one that was never stopped.

    PYTHONPATH=. .venv/bin/python benchmarks/kills.py runs/kills --kills 50      # some ten minutes

Every stage that comes to its end has to have the same weights, byte for byte, and the same records, times aside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline_lib.config import ChainSource, DapoLoss, Generation, PosteriorSampler, Refill, Train
from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.job import TrainJob, read_result, write_job
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.policy import policy_id_of
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains

TIMES = ("step_time", "rollout_time", "verify_time", "logprob_time", "update_time")
RESULTS = Path(__file__).parent / "results" / "kills.json"


def prepare(directory: Path) -> Path:
    directory.mkdir(parents=True)
    job = TrainJob(
        policy_path=str(BUILTIN_DIRECTORY),
        policy_id=policy_id_of(BUILTIN_DIRECTORY),
        policies_dir=str(directory.parent / "policies"),
        seed=11,
        device="cpu",
        dtype="float32",
        generation=Generation(max_tokens=30, max_prompt_tokens=32, batch_size=256),
        train=Train(
            steps=12,
            prompts_per_step=4,
            group_size=4,
            learning_rate=1e-3,
            warmup_steps=3,
            checkpoint_every=2,
            refill=Refill(max_rounds=3),
            loss=DapoLoss(kl_coefficient=0.01),
            sampler=PosteriorSampler(),
        ),
    )
    source = ChainSource(kinds=["plus", "minus"], lengths=[3, 4], count=16, seed=5)
    write_job(directory, job, [prompt for _, prompt in read_chains(source)], [])
    return directory


def start(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "worker.log").open("ab") as log:
        command = [sys.executable, "-m", "pipeline_lib.grpo.worker", str(directory)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def run_to_its_end(directory: Path) -> float:
    started = time.monotonic()
    if start(directory).wait() != 0:
        sys.exit((directory / "worker.log").read_text())
    return time.monotonic() - started


def killed(directory: Path, after: float) -> str | None:
    """Where the kill fell; None when the stage ended before."""
    worker = start(directory)
    try:
        worker.wait(after)
        return None
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    steps = finished_steps(directory / "records")
    saved = complete_checkpoints(directory / "checkpoints")
    if not steps:
        return "before the first step"
    newest = int(saved[-1].name.removeprefix("step-")) if saved else 0
    return f"{max(steps) - newest} steps after a checkpoint" if max(steps) > newest else "right after a checkpoint"


def end_of(directory: Path) -> tuple[Any, bytes, dict[str, Any]]:
    result = read_result(directory)
    assert result is not None
    records = {
        str(file.relative_to(directory)): [
            {name: value for name, value in row.items() if name not in TIMES} for row in pq.read_table(file).to_pylist()
        ]
        for file in sorted((directory / "records").glob("step-*/*.parquet"))
    }
    return result.policy_id, (Path(result.policy_path) / "model.safetensors").read_bytes(), records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.root, ignore_errors=True)
    undisturbed = prepare(arguments.root / "undisturbed" / "stage")
    seconds = run_to_its_end(undisturbed)
    expected = end_of(undisturbed)
    print(f"undisturbed: {seconds:.1f} s", flush=True)
    rng = random.Random(arguments.seed)
    moments: Counter[str] = Counter()
    stages = 0
    while moments.total() < arguments.kills:
        directory = prepare(arguments.root / f"{stages:02d}" / "stage")
        while moments.total() < arguments.kills:
            where = killed(directory, rng.uniform(0.1, seconds))
            if where is None:
                break
            moments[where] += 1
        run_to_its_end(directory)
        assert end_of(directory) == expected, f"{directory} ended differently"
        stages += 1
        print(f"{moments.total()} kills, {stages} stages, all with the same end", flush=True)
    outcome = {"kills": moments.total(), "stages": stages, "different ends": 0, "moments": dict(moments)}
    RESULTS.write_text(json.dumps(outcome, indent=2) + "\n")
    print(json.dumps(outcome, indent=2))


if __name__ == "__main__":
    main()
