"""A tiny curriculum, struck by faults at random, resumed, and compared with one that nothing ever happened to.

    PYTHONPATH=. .venv/bin/python benchmarks/chaos.py runs/chaos --faults 100 --seed 0

Started again it goes on after the last fault that it has a result of. Every fault begins with the root as the
undisturbed run had it before the step that was drawn. After it, the same command is given until the run is complete;
then every row of every table (times, process ids and attempts aside), every policy and every Parquet file of the lake
has to be that of the undisturbed run, byte for byte, and nothing that was finished when the fault struck may have been
done again. Needs Linux; the faults of a full disk need root, that of the clock a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chaos_curriculum import OTHER, Curriculum, Place, temporary_files
from chaos_faults import FAULTS, Attempt, Fault, leave_small_disk, small_disk
from chaos_run import Missed, take_stock

from flows.prefect_server import FOR_ONE_RUN, Server, free_port

RESULTS = Path(__file__).parent / "results" / "chaos.json"
MAX_RESUMES = 3


def drawn(curriculum: Curriculum, seed: int, number: int, draw: int) -> tuple[Fault, Place, random.Random]:
    """The fault of this number. Each kind comes once before any comes again."""
    order = list(FAULTS)
    random.Random(f"{seed}-{number // len(FAULTS)}").shuffle(order)
    fault = order[number % len(FAULTS)]
    rng = random.Random(f"{seed}-{number}-{draw}")
    places = [place for place in curriculum.places if fault.steps is None or place[1] in fault.steps]
    return fault, rng.choice(places), rng


def run_fault(curriculum: Curriculum, server: Server, seed: int, number: int) -> dict[str, Any]:
    """Until one has struck; those that came too late are counted."""
    for draw in range(20):
        fault, place, rng = drawn(curriculum, seed, number, draw)
        row = {"number": number, "fault": fault.name, "missed": draw}
        started = time.monotonic()
        leave_small_disk(curriculum.work)
        with ExitStack() as stack:
            if fault.name == "disk full":
                curriculum.work.mkdir(exist_ok=True)
                shutil.rmtree(curriculum.root, ignore_errors=True)
                stack.enter_context(small_disk(curriculum.work))
            logs = curriculum.directory / "logs" / f"{number:04d}"
            attempt = Attempt(curriculum, place, rng, server, logs)
            stack.callback(lambda attempt=attempt: [run.end() for run in attempt.runs])
            curriculum.reset(place)
            try:
                fault.do(attempt)
                row |= resumed(attempt)
            except Missed:
                continue
            except Exception as error:
                traceback.print_exc()
                row |= {"equal": False, "outcome": f"{type(error).__name__}: {error}", "differences": []}
            if not row["equal"]:
                curriculum.keep_failed(number)
            return row | {
                "step": attempt.struck_in,
                "facts": attempt.facts,
                "seconds": round(time.monotonic() - started, 1),
            }
    return row | {"equal": False, "outcome": "never struck", "step": "", "facts": {}, "differences": [], "seconds": 0}


def resumed(attempt: Attempt) -> dict[str, Any]:
    """Give the same command until the run is complete, and look at what came of it."""
    stock = take_stock(attempt.curriculum.root)
    codes = [run.process.returncode for run in attempt.runs]
    for _ in range(MAX_RESUMES):
        again = attempt.start(private=bool(attempt.resume_env), **attempt.resume_env)
        codes.append(again.wait())
        if codes[-1] == 0:
            break
    if attempt.both:
        assert attempt.start(*OTHER).wait() == 0
    differences = attempt.curriculum.differences(both=attempt.both)
    redone = stock.redone(take_stock(attempt.curriculum.root))
    tracebacks = sum("Traceback" in run.said() for run in attempt.runs)
    return {
        "equal": codes[-1] == 0 and not differences,
        "outcome": f"exit codes {', '.join(map(str, codes))}",
        "differences": differences,
        "redone": redone,
        "beyond the checkpoint": stock.beyond,
        "temporary files": temporary_files(attempt.curriculum.root),
        "tracebacks": tracebacks,
    }


def table(rows: list[dict[str, Any]], faults: Sequence[str]) -> Iterator[str]:
    """By kind, in Markdown."""
    yield "| fault | n | same end | finished work done again | training steps after the checkpoint | longest, s |"
    yield "|---|---|---|---|---|---|"
    for fault in faults:
        own = [row for row in rows if row["fault"] == fault]
        if own:
            again = sum(sum(row.get("redone", {}).values()) for row in own)
            beyond = sum(row.get("beyond the checkpoint", 0) for row in own)
            equal = sum(row["equal"] for row in own)
            yield f"| {fault} | {len(own)} | {equal} | {again} | {beyond} | {max(r['seconds'] for r in own):.0f} |"
    equal = sum(row["equal"] for row in rows)
    yield f"| **all** | {len(rows)} | {equal} | {sum(sum(row.get('redone', {}).values()) for row in rows)} | | |"
    stops = [row["facts"]["seconds to stop"] for row in rows if "seconds to stop" in row["facts"]]
    if stops:
        yield ""
        typical, longest = statistics.median(stops), max(stops)
        yield f"Stopped: {len(stops)} times, median {typical:.1f} s, longest {longest:.1f} s."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="Number of the first; the rest is another process's.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="Faults with this in their names.")
    arguments = parser.parse_args()
    curriculum = Curriculum(arguments.directory)
    curriculum.prepare()
    (curriculum.directory / "logs").mkdir(exist_ok=True)
    results = curriculum.directory / f"results-{arguments.seed}.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {row["number"] for row in rows}
    os.environ |= FOR_ONE_RUN
    server = Server(curriculum.directory / "prefect", free_port(), {})
    server.start()
    server.wait_until_it_answers()
    try:
        for number in range(arguments.first, arguments.faults):
            kind = drawn(curriculum, arguments.seed, number, 0)[0].name
            if number in done or (arguments.only and arguments.only not in kind):
                continue
            row = run_fault(curriculum, server, arguments.seed, number)
            rows.append(row)
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    finally:
        server.terminate()
        server.wait(10)
    print("\n".join(table(rows, [fault.name for fault in FAULTS])))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
