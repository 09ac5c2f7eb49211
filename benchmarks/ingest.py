"""What ingest costs: rows a second and memory, beside a plain json.loads of each line and pyarrow's own reader.

    python benchmarks/ingest.py --rows 1000000

Each case runs in a process of its own. Seconds are processor time, which a busy machine distorts less than the clock;
memory is the peak of the process (VmHWM) over what it needed after its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CASES = ("json.loads", "pyarrow", "rows", "prompts", "ingest", "warehouse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--file", type=Path, help="of one case, in a process of its own")
    options = parser.parse_args()
    if options.file is not None:
        print(json.dumps(measure(options.cases[0], options.file)))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plain.jsonl"
        write_rows(path, options.rows)
        print(f"{options.rows:,} rows, {path.stat().st_size / options.rows:.0f} bytes a row, {os.cpu_count()} cores")
        print(f"{'':12} {'µs a row':>9} {'rows/s':>9} {'clock s':>9} {'× json.loads':>13} {'peak MB':>8}")
        unit = None
        for case in options.cases:
            command = [sys.executable, __file__, "--cases", case, "--file", str(path)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds = found["seconds"]
            unit = unit or seconds
            print(
                f"{case:12} {seconds / options.rows * 1e6:9.1f} {options.rows / seconds:9,.0f} {found['clock']:9.1f} "
                f"{seconds / unit:13.1f} {found['peak_mb']:8.0f}",
                flush=True,
            )


def write_rows(path: Path, n_rows: int) -> None:
    with path.open("w") as file:
        for i in range(n_rows):
            question = f"A farmer has {i} sheep and buys {i % 17} more every week. " + "How many are there later? " * 6
            file.write(json.dumps({"question": question, "answer": str(i + 3 * (i % 17))}) + "\n")


def measure(case: str, path: Path) -> dict[str, float]:
    work = case_of(case, path)
    before, clock, seconds = peak_mb(), time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": time.process_time() - seconds,
        "clock": time.perf_counter() - clock,
        "peak_mb": peak_mb() - before,
    }


def case_of(case: str, path: Path) -> Callable[[], object]:
    """What the case does, its imports done."""
    if case == "json.loads":
        return lambda: [None for line in path.open("rb") if json.loads(line) is None]
    if case == "pyarrow":
        import pyarrow.json

        return lambda: pyarrow.json.read_json(path).num_rows
    from pipeline_lib.config import FileSource
    from pipeline_lib.prompts.files import open_rows
    from pipeline_lib.prompts.ingest import ingest
    from pipeline_lib.prompts.readers import read_rows
    from pipeline_lib.rewards import get_verifier
    from tasks.prompt_rows import ingest_data
    from warehouse import Warehouse

    get_verifier("math")
    source = FileSource(path=str(path))
    if case == "rows":
        return lambda: [None for _, row in read_rows(path) if row is None]
    if case == "prompts":
        return lambda: [None for _, prompt in open_rows(source).prompts if prompt is None]
    if case == "ingest":
        return lambda: ingest([source], set_name="benchmark", scratch=path.parent)
    return lambda: ingest_data(Warehouse(path.parent / "root"), source, lambda sentence: None)


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
