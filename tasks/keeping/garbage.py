"""What no run of a root needs: found, and removed so that no record speaks of a file that is gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tasks.keeping.inventory import outputs_of_steps, policies, size_of, steps_at_work, unfinished_files
from tasks.locks import lock_path, worked_on_by
from warehouse import Warehouse, WarehouseError
from warehouse.files import exclusive_lock

REMOVED = "removed"
"""Status of a step whose files went: its rows stay, and it is done again where a run comes to need it."""
USED = "SELECT DISTINCT fingerprint FROM run_steps"
TRAINED = "SELECT fingerprint FROM steps WHERE name = 'train' AND status = 'completed'"
POLICIES = f"""
    SELECT DISTINCT outputs->>'path' AS path, outputs->>'policy_id' AS policy_id, status FROM steps
    WHERE outputs->>'policy_id' IS NOT NULL AND fingerprint IN ({USED})
"""


@dataclass(frozen=True)
class Garbage:
    path: Path
    n_bytes: int
    why: str
    fingerprint: str | None = None
    """Of the step that wrote it, whose lock is held while it goes."""
    whole_step: bool = False
    """Whether nothing of the step is needed, not only what it worked with."""


def find_garbage(warehouse: Warehouse) -> Iterator[Garbage]:
    """Files of steps that no run takes, checkpoints of stages that are trained, policies and halves that nobody has.

    While any step is at work, policies and halves are not looked at: they may be its own.
    """
    root = warehouse.root
    used = _fingerprints(warehouse, USED)
    trained = _fingerprints(warehouse, TRAINED)
    for output in outputs_of_steps(root):
        if worked_on_by(root, output.fingerprint) is not None:
            continue
        if output.fingerprint not in used:
            yield Garbage(output.path, size_of(output.path), "no run takes this step", output.fingerprint, True)
        elif output.kind == "stage" and output.fingerprint in trained:
            checkpoints = output.path / "checkpoints"
            if checkpoints.exists():
                yield Garbage(checkpoints, size_of(checkpoints), "the stage is trained", output.fingerprint)
    if not steps_at_work(warehouse):
        # By their names: a root may have been moved, or be reached by a link.
        needed = {Path(path).name for path in warehouse.query(POLICIES)["path"].to_pylist()}
        for path in policies(root):
            if path.name not in needed:
                yield Garbage(path, size_of(path), "no step of a run has it as its result")
        for path in unfinished_files(root):
            yield Garbage(path, size_of(path), "a writer was killed over it")


def remove_garbage(warehouse: Warehouse, garbage: Garbage) -> bool:
    """Remove it, its records first; False where somebody has come to need it meanwhile."""
    with ExitStack() as held:
        if garbage.fingerprint is not None:
            try:
                held.enter_context(exclusive_lock(lock_path(warehouse.root, garbage.fingerprint), timeout_seconds=0))
            except WarehouseError:
                return False
        elif steps_at_work(warehouse):
            return False
        if garbage.whole_step:
            assert garbage.fingerprint is not None
            if garbage.fingerprint in _fingerprints(warehouse, USED):
                return False
            _forget(warehouse, garbage.fingerprint)
        if garbage.path.is_dir():
            # Half a directory must not pass for a whole one, should this be killed over it.
            going = garbage.path.with_name(f".{garbage.path.name}.{os.getpid()}.tmp")
            garbage.path.rename(going)
            shutil.rmtree(going)
        else:
            garbage.path.unlink(missing_ok=True)
    return True


def _forget(warehouse: Warehouse, fingerprint: str) -> None:
    if warehouse.query("SELECT 1 FROM steps WHERE fingerprint = $1", [fingerprint]).num_rows:
        row = {"fingerprint": fingerprint, "status": REMOVED}
        warehouse.write({"steps": pa.Table.from_pylist([row])})
    warehouse.write({"shards": pa.table({})}, fingerprint=fingerprint, instead=True)


def _fingerprints(warehouse: Warehouse, sql: str) -> set[str]:
    return set(warehouse.query(sql)["fingerprint"].to_pylist())
