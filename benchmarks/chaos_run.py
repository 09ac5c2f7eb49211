"""`rlsift run` in processes that can be found, hurt and counted; what a run has finished, and what it did again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos_curriculum import Found

from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.parquet import is_whole
from warehouse import Warehouse
from warehouse.lake import verify_shard

ROLES = {
    "training": "pipeline_lib.grpo.worker",
    "scoring": "pipeline_lib.influence.worker",
    "server": "uvicorn",
    "worker": "prefect worker start",
}
"""What the command lines of a run's other processes have in them."""
PATIENCE = 900.0


class Missed(Exception):
    """The fault did not strike: what it waited for had passed, or there was nothing to damage."""


class Run:
    """One start of a run. All its processes bear a mark in their environment."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self.log = log
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "RLSIFT"))}
        source = str(Path(__file__).parents[1])
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=kept
                | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source, "COLUMNS": "200", "RLSIFT_CHAOS": self._mark}
                | dict(env),
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, reached: Callable[[], object]) -> None:
        """Raises Missed where the run ends before."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Missed("the run ended before it was hurt")
            time.sleep(0.02)

    def wait_within(self, step: Found, seconds: float, *, until: Callable[[], object] = lambda: True) -> str:
        """Wait until it is in `step`, then for `until`, then so many seconds; the step it is in by then."""
        self.wait_for(lambda: f"{step.label} begins" in self.said())
        self.wait_for(until)
        time.sleep(seconds)
        if self.process.poll() is not None:
            raise Missed("the run ended before it was hurt")
        return self.last_step()

    def last_step(self) -> str:
        """The step that it began last."""
        begun: list[str] = re.findall(r"(stage .*) begins", self.said())
        return begun[-1] if begun else "before the first step"

    def processes(self, role: str | None = None) -> list[int]:
        """Those that are no zombies; of one role, or all."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    marked = self._mark.encode() in (entry / "environ").read_bytes()
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if marked and command and (role is None or ROLES[role] in command):
                        found.append(int(entry.name))
        return found

    def hurt(self, role: str | None, how: signal.Signals) -> None:
        """Send the signal to one process of a role, or to all processes."""
        pids = self.processes(role)
        if not pids:
            raise Missed(f"no process for {role or 'anything'} was there")
        if role is not None:
            pids = pids[:1]
        for pid in pids:
            kill(pid, how)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def left_after(self, seconds: float) -> int:
        """How many of its processes are there after `seconds`, or sooner none."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return len(left)

    def end(self) -> None:
        """Of what an attempt has left, whatever became of it."""
        for pid in self.processes():
            kill(pid)
        self.process.wait(PATIENCE)


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """One that is gone already needs none."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


@dataclass(frozen=True)
class Stock:
    """What is finished, so that it must not be done again: each unit with what would change if it were."""

    steps: dict[str, object]
    shards: dict[str, object]
    parts: dict[str, object]
    training: dict[str, object]
    beyond: int
    """Training steps after the last checkpoint, which are to be done again."""

    def redone(self, now: Stock) -> dict[str, int]:
        kinds = ("steps", "shards", "parts", "training")
        return {
            kind: sum(getattr(now, kind).get(unit) != mark for unit, mark in getattr(self, kind).items())
            for kind in kinds
        }


def take_stock(root: Path) -> Stock:
    warehouse = Warehouse(root)
    completed = warehouse.query("SELECT fingerprint, attempts FROM steps WHERE status = 'completed'").to_pylist()
    rows = warehouse.query("SELECT fingerprint, path, sha256 FROM shards").to_pylist()
    shards = [root / row["path"] for row in rows if verify_shard(root / row["path"], row["sha256"])]
    damaged = {row["fingerprint"] for row in rows if root / row["path"] not in shards}
    training: dict[str, object] = {}
    beyond = 0
    for stage in root.glob("stages/*/*"):
        saved = complete_checkpoints(stage / "checkpoints")
        newest = int(saved[-1].name.removeprefix("step-")) if saved else 0
        steps = finished_steps(stage / "records")
        beyond += sum(step > newest for step in steps)
        records = [stage / f"records/step-{step:06d}/train_steps.parquet" for step in steps if step <= newest]
        training |= {str(path): _mark(path) for path in records}
    return Stock(
        steps={row["fingerprint"]: row["attempts"] for row in completed if row["fingerprint"] not in damaged},
        shards={str(path): _mark(path) for path in shards},
        parts={str(path): _mark(path) for path in root.glob("lake/scores/*/*.parquet") if is_whole(path)},
        training=training,
        beyond=beyond,
    )


def _mark(path: Path) -> object:
    """A file that is written again, under another name first, is another one for the file system."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
