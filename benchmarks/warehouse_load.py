"""The warehouse while others are at it: readers beside a writer, and a writer that is killed again and again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from warehouse_filling import Filling

from warehouse import Warehouse, WarehouseError

READS_PER_SECOND = 20
PUBLISH_EVERY_SECONDS = 10
ASKED = (
    "SELECT * FROM run_progress",
    "SELECT * FROM stage_summary WHERE run_id = 'big'",
    "SELECT selected, count(*) FROM selections WHERE fingerprint = 'big-1-select' GROUP BY ALL",
    "SELECT * FROM rollout_stats WHERE fingerprint = 'running' ORDER BY step DESC LIMIT 20",
)
BATCH = 500
"""Rows of each of the two tables in one write of the one that is killed."""
COUNTS = """
    SELECT fingerprint, n_statistics, n_decisions
    FROM (SELECT fingerprint, count(*) AS n_statistics FROM rollout_stats GROUP BY ALL)
    FULL JOIN (SELECT fingerprint, count(*) AS n_decisions FROM sampler_decisions GROUP BY ALL) USING (fingerprint)
"""


def read_under_load(root: Path, seconds: int) -> dict[str, Any]:
    """Milliseconds: a writer process without a pause, as many training steps at once, and reads on a clock."""
    Warehouse(root).publish()
    writer = _start("write_steps", root, str(seconds))
    random_numbers, milliseconds, late, failed = random.Random(3), [], 0, []
    started = time.perf_counter()
    for i in range(seconds * READS_PER_SECOND):
        due = started + i / READS_PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        begun = time.perf_counter()
        late += begun - due > 1 / READS_PER_SECOND
        try:
            Warehouse(root).snapshot_query(random_numbers.choice(ASKED))
        except WarehouseError as error:
            failed.append(str(error))
        milliseconds.append(1000 * (time.perf_counter() - begun))
    took = time.perf_counter() - started
    assert writer.stdout is not None
    lines = [line.split() for line in writer.stdout.read().splitlines()]
    assert writer.wait() == 0
    writes = [float(ms) for what, ms in lines if what == "write"]
    publishes = [float(ms) for what, ms in lines if what == "publish"]
    for table in ("rollout_stats", "sampler_decisions"):
        Warehouse(root).write({table: pa.table({})}, fingerprint="running", instead=True)
    return {
        "reads": len(milliseconds),
        "reads_per_second": round(len(milliseconds) / took, 1),
        "failed_reads": failed,
        "reads_begun_late": late,
        "read_ms": _spread(milliseconds),
        "writes": len(writes),
        "write_ms": _spread(writes),
        "publish_ms": _spread(publishes),
    }


def write_steps(root: Path, seconds: int) -> None:
    """Training steps one after the other, published every so often; a line with its milliseconds for each."""
    warehouse, filling = Warehouse(root), Filling(100_000, 10_000)
    ended, published = time.monotonic() + seconds, time.monotonic()
    step = 0
    while time.monotonic() < ended:
        step += 1
        tables = _step_rows(filling, step, 32)
        begun = time.perf_counter()
        warehouse.write(tables, fingerprint="running")
        print("write", 1000 * (time.perf_counter() - begun), flush=True)
        if time.monotonic() - published > PUBLISH_EVERY_SECONDS:
            begun, published = time.perf_counter(), time.monotonic()
            warehouse.publish()
            print("publish", 1000 * (time.perf_counter() - begun), flush=True)


def survive_kills(root: Path, times: int) -> dict[str, Any]:
    """A writer acknowledges each committed batch, is killed at a random moment, and all that it said is looked for."""
    warehouse, clock = Warehouse(root), random.Random(5)
    acknowledged: dict[str, int] = {}
    unacknowledged = 0
    for i in range(times):
        writer = _start("write_batches", root, str(i))
        assert writer.stdout is not None
        first = writer.stdout.readline().strip()
        time.sleep(clock.uniform(0, 0.6))
        writer.kill()
        said = [first, *writer.stdout.read().split()]
        writer.wait()
        acknowledged |= dict.fromkeys(filter(None, said), BATCH)
        if i % 20 == 7:
            warehouse.publish()
        found = {
            row["fingerprint"]: (row["n_statistics"], row["n_decisions"]) for row in warehouse.query(COUNTS).to_pylist()
        }
        broken = {name: counts for name, counts in found.items() if counts != (BATCH, BATCH)}
        assert not broken, f"half a batch after kill {i}: {broken}"
        lost = acknowledged.keys() - found.keys()
        assert not lost, f"lost after kill {i}: {lost}"
        unacknowledged = len(found) - len(acknowledged)
    shutil.rmtree(root)
    return {
        "kills": times,
        "batches_acknowledged": len(acknowledged),
        "rows_acknowledged": 2 * BATCH * len(acknowledged),
        "batches_lost": 0,
        "batches_committed_but_not_yet_acknowledged": unacknowledged,
        "databases_that_did_not_open": 0,
    }


def write_batches(root: Path, number: int) -> None:
    warehouse, filling = Warehouse(root), Filling(100_000, 10_000)
    for i in range(1_000_000):
        name = f"{number}-{i}"
        warehouse.write(_step_rows(filling, 1, BATCH), fingerprint=name)
        print(name, flush=True)


def _step_rows(filling: Filling, step: int, n: int) -> dict[str, pa.Table]:
    prompts = filling.rng.choice(filling.n_prompts, n, replace=False)
    steps = range(step, step + 1)
    decisions = filling.decisions(prompts, steps).slice(0, BATCH)
    return {"rollout_stats": filling.statistics(prompts, steps, "train"), "sampler_decisions": decisions}


def _spread(milliseconds: list[float]) -> dict[str, float]:
    at = np.percentile(milliseconds, [50, 99, 100]) if milliseconds else [0, 0, 0]
    return dict(zip(("median", "p99", "worst"), (round(float(value), 1) for value in at), strict=True))


def _start(function: str, root: Path, argument: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, str(Path(__file__)), function, str(root), argument]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


if __name__ == "__main__":
    {"write_steps": write_steps, "write_batches": write_batches}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
