"""The warehouse at scale, through its own interface. One run writes results/warehouse.json.

    PYTHONPATH=. .venv/bin/python benchmarks/warehouse_scale.py --rows 10000000 --root DIR
    PYTHONPATH=. .venv/bin/python benchmarks/warehouse_scale.py --rows 10000000 --root DIR top_alpha load

Not named warehouse.py: that would hide the package from every script beside it. Sections, each in a process of its own,
so that its peak of memory is its own: `write` fills the root, `small` writes what a training step does, `ask` times
every view and named query, `top_alpha` selects from the whole pool, `peers` writes the same statistics row by row and
with SQLite, `load` reads 20 times a second beside a writer, `kills` ends a writer with -9 again and again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from machine import processor
from warehouse_filling import SETS, STAGES, Filling, batches, step_row
from warehouse_load import read_under_load, survive_kills
from warehouse_peers import write_with_peers

from pipeline_lib.config import ChainSource, InfluenceSelection, Prompts, RunConfig
from pipeline_lib.selection import select
from tasks.progress import get_reporter
from tasks.selection import Select
from tasks.step import Done, Workshop
from warehouse import Limits, Warehouse
from warehouse.named import QUERIES

RESULTS = Path(__file__).parent / "results" / "warehouse.json"
VIEWS = {
    "prompt_difficulty_history": "SELECT * FROM prompt_difficulty_history WHERE prompt_id = $prompt",
    "prompt_difficulty": "SELECT outcome, count(*) FROM prompt_difficulty WHERE run_id = 'big' GROUP BY 1",
    "prompt_difficulty, all rows": "SELECT * FROM prompt_difficulty",
    "prompt_paths": "SELECT count(*), max(length(outcomes)) FROM prompt_paths",
    "zero_variance_persistence": "SELECT * FROM zero_variance_persistence",
    "zero_variance_revivals": "SELECT * FROM zero_variance_revivals WHERE prompt_id = $prompt",
    "zero_variance_revivals, all": "SELECT from_outcome, count(*) FROM zero_variance_revivals GROUP BY 1",
    "sampler_efficiency": "SELECT * FROM sampler_efficiency",
    "evaluation_history": "SELECT * FROM evaluation_history",
    "selection_history": "SELECT stage, selected, count(*), avg(pass_rate) FROM selection_history GROUP BY ALL",
    "selection_overlap": "SELECT * FROM selection_overlap",
    "stage_diagnosis": "SELECT * FROM stage_diagnosis WHERE run_id = 'big'",
    "run_progress": "SELECT * FROM run_progress",
    "stage_summary": "SELECT * FROM stage_summary",
    "rollout_settings": "SELECT * FROM rollout_settings",
}
GIVEN = {"prompt": "", "run": "big", "other": "small", "after": "2"}


def write(options: argparse.Namespace) -> dict[str, Any]:
    """`steps` is what it takes to gather the totals of each step as it ends."""
    warehouse = Warehouse(options.root)
    seconds: dict[str, float] = {}
    cpu: dict[str, float] = {}
    rows: dict[str, int] = {}
    for fingerprint, tables in batches(Filling(options.rows, options.prompts)):
        started, cpu_started = time.perf_counter(), time.process_time()
        warehouse.write(tables, fingerprint=fingerprint)
        name = next(iter(tables))
        seconds[name] = seconds.get(name, 0) + time.perf_counter() - started
        cpu[name] = cpu.get(name, 0) + time.process_time() - cpu_started
        rows[name] = rows.get(name, 0) + sum(table.num_rows for table in tables.values())
        print(f"{name:<20} {rows[name]:>12,} rows {seconds[name]:>8.1f} s", flush=True)
    started = time.perf_counter()
    warehouse.publish()
    statistics_and_totals = rows["rollout_stats"] / (seconds["rollout_stats"] + seconds["steps"])
    return {
        "rows": rows,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "cpu": {name: round(value, 1) for name, value in cpu.items()},
        "rows_per_second": {name: round(rows[name] / seconds[name]) for name in rows},
        "statistics_per_second_with_all_totals": round(statistics_and_totals),
        "publish_seconds": round(time.perf_counter() - started, 2),
        "database_bytes": warehouse.path.stat().st_size,
    }


def small(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of the writes of 30 training steps, then of the same again; 32 statistics and 100 decisions each."""
    warehouse, filling = Warehouse(options.root), Filling(options.rows, options.prompts)
    found: dict[str, Any] = {}
    written = []
    for step in range(1, 31):
        prompts = filling.rng.choice(filling.n_prompts, 60, replace=False)
        decisions = filling.decisions(prompts, range(step, step + 1))
        written.append(
            {
                "rollout_stats": filling.statistics(prompts[:32], range(step, step + 1), "train"),
                "sampler_decisions": decisions,
            }
        )
    for name in ("new", "again"):
        milliseconds, cpu = [], []
        for tables in written:
            started, cpu_started = time.perf_counter(), time.process_time()
            warehouse.write(tables, fingerprint="running")
            milliseconds.append(1000 * (time.perf_counter() - started))
            cpu.append(1000 * (time.process_time() - cpu_started))
        found[name] = {
            "median": round(statistics.median(milliseconds)),
            "worst": round(max(milliseconds)),
            "cpu": round(statistics.median(cpu)),
        }
    for table in written[0]:
        warehouse.write({table: pa.table({})}, fingerprint="running", instead=True)
    return found


def timed(ask: Callable[[], pa.Table]) -> dict[str, Any]:
    """Medians of three, after one to warm up; `cpu` is the processor time of all threads."""
    seconds, cpu = [], []
    for _ in range(4):
        started, cpu_started = time.perf_counter(), time.process_time()
        n_rows = ask().num_rows
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    medians = (round(statistics.median(times[1:]), 3) for times in (seconds, cpu))
    return {**dict(zip(("seconds", "cpu"), medians, strict=True)), "rows": n_rows}


def ask(options: argparse.Namespace) -> dict[str, Any]:
    warehouse = Warehouse(options.root)
    prompt = warehouse.ask("SELECT prompt_id FROM selections WHERE selected LIMIT 1")["prompt_id"][0].as_py()
    limits, given = Limits("8GB", 600), GIVEN | {"prompt": prompt}
    found: dict[str, Any] = {}
    for name, sql in VIEWS.items():
        parameters = {"prompt": prompt} if "$prompt" in sql else None
        found[f"view {name}"] = timed(lambda: warehouse.ask(sql, parameters, limits=limits))
        print(f"view  {name:<32} {found[f'view {name}']}", flush=True)
    for name, query in QUERIES.items():
        values = query.values({p.name: given[p.name] for p in query.parameters if p.name in given})
        found[f"query {name}"] = timed(lambda: warehouse.ask(query.sql, values, limits=limits))
        print(f"query {name:<32} {found[f'query {name}']}", flush=True)
    return found


def ask_while_training(options: argparse.Namespace) -> dict[str, Any]:
    """As `ask`, a row of the last stage written again: it counts as still training, and its totals are not kept."""
    warehouse, last = Warehouse(options.root), f"big-{STAGES}-train"
    again = warehouse.query("FROM rollout_stats WHERE fingerprint = $1 LIMIT 1", [last])
    warehouse.write({"rollout_stats": again})
    warehouse.publish()
    found = ask(options)
    warehouse.write({"steps": step_row(last, "train")})
    warehouse.publish()
    return found


def top_alpha(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the last stage's selection, reasons written: from the warehouse to the table, then into it again."""
    warehouse, last = Warehouse(options.root), Done(f"big-{STAGES}-score", {"ranks_id": "ranks"}, cached=True)
    chains = [ChainSource(kinds=["plus"], lengths=[1], count=2)]
    prompts = Prompts(train=chains, validation={"v": chains}, evaluation={"e": chains})
    run = RunConfig(name="big", root=str(options.root), stages=STAGES, prompts=prompts, selection=InfluenceSelection())
    names = ["offline", *(f"big-{stage}-train" for stage in range(1, STAGES))]
    history = tuple(Done(name, {}, cached=True) for name in names)
    step = Select(run, STAGES, Done("ingest", {}, cached=True), history[:1], last, None, history)
    at = Workshop(step, warehouse, get_reporter())
    found: dict[str, list[float]] = {"known": [], "ranked": [], "written": [], "cpu_without_written": []}
    for _ in range(4):
        marks, cpu_started = [time.perf_counter()], time.process_time()
        candidates = step._candidates(at)
        marks.append(time.perf_counter())
        table = select(run.selection, candidates, seed=0)
        marks.append(time.perf_counter())
        found["cpu_without_written"].append(time.process_time() - cpu_started)
        warehouse.write({"selections": table}, fingerprint="benchmark")
        marks.append(time.perf_counter())
        for name, seconds in zip(found, np.diff(marks), strict=False):
            found[name].append(float(seconds))
        warehouse.write({"selections": table.slice(0, 0)}, fingerprint="benchmark", instead=True)
    medians = {name: round(statistics.median(seconds[1:]), 2) for name, seconds in found.items()}
    return {"prompts": len(candidates), "sets": len(SETS), **medians}


def peers(options: argparse.Namespace) -> dict[str, Any]:
    return write_with_peers(
        options.root.with_name(options.root.name + "-peers"), Filling(options.rows, options.prompts)
    )


def load(options: argparse.Namespace) -> dict[str, Any]:
    return read_under_load(options.root, options.seconds)


def kills(options: argparse.Namespace) -> dict[str, Any]:
    return survive_kills(options.root.with_name(options.root.name + "-kills"), options.kills)


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    section.__name__: section for section in (write, small, ask, ask_while_training, top_alpha, peers, load, kills)
}


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    found = SECTIONS[name](options)
    return found | {"peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--rows", type=int, default=10_000_000, help="statistics rows, about")
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--root", type=Path, required=True, help="an empty directory, or one that `write` has filled")
    parser.add_argument("--seconds", type=int, default=60, help="of reading under load")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    results |= {"processor": processor(), "asked_rows": options.rows, "prompts": options.prompts}
    for name in options.sections or SECTIONS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results[name] = pool.apply(measured, (name, options))
        print(name, json.dumps(results[name])[:2000], flush=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
