"""Re-entry, once for all steps: what is recorded complete is not run again, what is not goes on.

A step's fingerprint is a hash of its name, its own settings, the fingerprints or ids of what it reads, and
the contract version of its code. The warehouse is the memory; Prefect only shows what happens, and is not imported
here, so that it costs nothing to ask what is recorded.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.atomic import is_disk_full
from pipeline_lib.config import RunConfig
from tasks.errors import StepFailed
from tasks.live_files import ProgressFile, progress_path
from tasks.locks import lock_path
from tasks.progress import Reporter, get_reporter
from warehouse import Warehouse, WarehouseError
from warehouse.files import exclusive_lock

PUBLISH_EVERY_SECONDS = 30.0
RECORDED = """
    SELECT outputs FROM steps
    WHERE fingerprint = $1 AND status = 'completed' AND json_type(outputs) = 'OBJECT'
"""


@dataclass(frozen=True)
class Done:
    """A completed step: what later steps need to know of it."""

    fingerprint: str
    outputs: Mapping[str, Any]
    cached: bool


def fingerprints(name: str, steps: Sequence[Done]) -> dict[str, str]:
    """Of several steps of one kind, in their order, as a step's inputs name them."""
    return {f"{name}_{i}": done.fingerprint for i, done in enumerate(steps)}


@dataclass(frozen=True)
class Work:
    """What a step hands back: its outputs (small, JSON), and rows by table, all recorded in one transaction."""

    outputs: dict[str, Any]
    tables: dict[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Step(ABC):
    """One step of a run. Subclasses are frozen dataclasses of the run's config and of earlier steps' results."""

    name: ClassVar[str]
    contract: ClassVar[int] = 1
    """Raised when the code changes what it writes, so that older results are not taken for its own."""

    run: RunConfig
    stage: int

    @property
    def label(self) -> str:
        return f"stage {self.stage}/{self.run.stages} · {self.name.replace('_', ' ')}"

    @property
    def root(self) -> Path:
        return Path(self.run.root)

    @cached_property
    def fingerprint(self) -> str:
        content = {
            "name": self.name,
            "contract": self.contract,
            "settings": self.settings(),
            "inputs": self.inputs(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def seed(self, *parts: object) -> int:
        """A seed of its own for each part of the step's work, the same in every attempt."""
        content = json.dumps([self.run.seed, self.name, *parts])
        return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") >> 1

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The part of the config that its result depends on."""

    @abstractmethod
    def inputs(self) -> dict[str, str]:
        """Fingerprints and ids of what it reads."""

    @abstractmethod
    def work(self, at: Workshop) -> Work: ...

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        """Files that a completed step should have left and that are gone."""
        return []

    def left_over(self) -> str:
        """What an attempt that did not end has left to go on from, in words; empty where there is nothing."""
        return ""


class Workshop:
    """Where a step works: the warehouse, its own fingerprint, and the world that watches."""

    def __init__(self, step: Step, warehouse: Warehouse, reporter: Reporter) -> None:
        self.fingerprint = step.fingerprint
        self.warehouse = warehouse
        self.reporter = reporter
        self._published = time.monotonic()

    def record(self, tables: Mapping[str, pa.Table], *, instead: bool = False) -> None:
        """Write rows while the step goes on; readers see them within PUBLISH_EVERY_SECONDS.

        `instead` puts them in the place of all that these tables have of the step.
        """
        self.warehouse.write(tables, fingerprint=self.fingerprint, instead=instead)
        if time.monotonic() - self._published > PUBLISH_EVERY_SECONDS:
            self.warehouse.publish()
            self._published = time.monotonic()


def recorded(step: Step) -> Done | None:
    """The step's result if the warehouse has it complete and its files are still there."""
    done, lost = _recorded(step)
    return None if lost else done


def _recorded(step: Step) -> tuple[Done | None, list[str]]:
    """The recorded result, and which of its files are lost."""
    rows = Warehouse(step.root).query(RECORDED, [step.fingerprint]).to_pylist()
    if not rows:
        return None, []
    outputs = json.loads(rows[0]["outputs"])
    return Done(step.fingerprint, outputs, cached=True), step.lost_outputs(outputs)


def perform(step: Step) -> Done:
    """Give the recorded result, or do the work and record it. One process works on a step at a time."""
    reporter = get_reporter()
    warehouse = Warehouse(step.root)
    with _alone(step, reporter), _full_disk_in_words(step):
        done, lost = _recorded(step)
        if done is not None and not lost:
            warehouse.write({"run_steps": _run_steps_row(step)})
            reporter.start(step.label, None, "")
            reporter.finish("cached")
            return done
        if lost:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            reporter.say(
                f"{step.label} was complete, but its {lost[0]}{more} is gone or damaged; what is lost is made again."
            )
        warehouse.write({"steps": _started_row(step, warehouse), "run_steps": _run_steps_row(step)})
        warehouse.publish()
        reporter = ProgressFile(reporter, progress_path(step.root, step.fingerprint))
        try:
            at = Workshop(step, warehouse, reporter)
            work = step.work(at)
            ended = _ended_row(step, "completed", outputs=work.outputs)
            warehouse.write({**work.tables, "steps": ended}, fingerprint=step.fingerprint)
        except BaseException as error:
            reporter.finish("failed")
            _record_failure(step, error, warehouse, reporter)
            if isinstance(error, ValueError):  # of the input, for whoever gave it
                raise StepFailed(f"{step.label}: {error}") from error
            raise
        warehouse.publish()
        reporter.finish("done")
        return Done(step.fingerprint, work.outputs, cached=False)


def _record_failure(step: Step, error: BaseException, warehouse: Warehouse, reporter: Reporter) -> None:
    """Where that cannot be written either, the step stays recorded as running, with nobody at work on it."""
    try:
        warehouse.write({"steps": _ended_row(step, "failed", error=_in_words(error))})
        warehouse.publish()
    except (WarehouseError, OSError) as another:
        reporter.say(f"{step.label} has failed, and the warehouse could not be told: {another}")


@contextmanager
def _full_disk_in_words(step: Step) -> Iterator[None]:
    """Around all that a step writes: its own files, its rows, and the snapshots before and after."""
    try:
        yield
    except StepFailed:
        raise
    except Exception as error:
        if is_disk_full(error, step.root):
            raise StepFailed(f"{step.label}: the disk of {step.root} is full; make room on it ({error})") from error
        raise


@contextmanager
def _alone(step: Step, reporter: Reporter) -> Iterator[None]:
    path = lock_path(step.root, step.fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_lock(path, timeout_seconds=0.5))
        except WarehouseError:
            reporter.say(f"{step.label} is being worked on by process {path.read_text()}; waiting for it to end.")
            held.enter_context(exclusive_lock(path, timeout_seconds=float("inf")))
        yield


def _run_steps_row(step: Step) -> pa.Table:
    row = {
        "run_id": step.run.name,
        "stage": step.stage,
        "name": step.name,
        "fingerprint": step.fingerprint,
    }
    return pa.Table.from_pylist([row])


def _started_row(step: Step, warehouse: Warehouse) -> pa.Table:
    flow_run_id, task_run_id = _prefect_run_ids()
    attempts = warehouse.query("SELECT attempts FROM steps WHERE fingerprint = $1", [step.fingerprint])
    row = {
        "fingerprint": step.fingerprint,
        "name": step.name,
        "status": "running",
        "contract": step.contract,
        "settings": json.dumps(step.settings()),
        "inputs": json.dumps(step.inputs()),
        "outputs": None,
        "error": None,
        "attempts": 1 + (attempts["attempts"][0].as_py() if attempts.num_rows else 0),
        "flow_run_id": flow_run_id,
        "task_run_id": task_run_id,
        "started_at": datetime.now(UTC),
        "finished_at": None,
    }
    return pa.Table.from_pylist([row])


def _ended_row(step: Step, status: str, *, outputs: dict[str, Any] | None = None, error: str | None = None) -> pa.Table:
    row = {
        "fingerprint": step.fingerprint,
        "status": status,
        "outputs": None if outputs is None else json.dumps(outputs),
        "error": error,
        "finished_at": datetime.now(UTC),
    }
    return pa.Table.from_pylist([row])


def _prefect_run_ids() -> tuple[str | None, str | None]:
    """Of the flow run and the task run that this happens in. Where nobody has imported Prefect there are none."""
    if "prefect" not in sys.modules:
        return None, None
    from prefect.runtime import flow_run, task_run

    return flow_run.id, task_run.id


def _in_words(error: BaseException) -> str:
    if not isinstance(error, Exception):  # Ctrl-C, or Prefect's TerminationSignal
        return "interrupted"
    return f"{type(error).__name__}: {error}"
