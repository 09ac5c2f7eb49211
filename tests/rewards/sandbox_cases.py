"""What the tests of the sandbox share: processes below one of ours, and a program to be killed with its sandbox."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from pipeline_lib.rewards.sandbox import Limits, Session, Status, find_way

QUICK = Limits(cpu_seconds=1, wall_seconds=1, memory_mb=256, threads=8, file_mb=2, output_mb=1, total_seconds=60)


def run(source: str, stdin: str = "", limits: Limits = QUICK) -> tuple[Status, str]:
    with Session(find_way(), limits, source) as session:
        return session.run(stdin)


def descendants(pid: int) -> set[int]:
    """Processes below one, by /proc."""
    children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return children.union(*map(descendants, children))


def all_gone(pids: Iterable[int], seconds: float = 30) -> bool:
    """Whether these processes end soon."""
    deadline = time.monotonic() + seconds
    left = set(pids)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if _runs(pid)}
        time.sleep(0.02)
    return not left


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    with Session(find_way(), Limits(wall_seconds=600), "import time\nprint(1, flush=True)\ntime.sleep(600)") as session:
        print("started", flush=True)
        session.run("")
