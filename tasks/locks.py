"""Who works on a step now: the lock file of its fingerprint, which the kernel drops with its holder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from warehouse import Warehouse
from warehouse.files import exclusive_lock, holder

RUNNING = "SELECT fingerprint FROM steps WHERE status = 'running'"


def lock_path(root: Path, fingerprint: str) -> Path:
    return root / "locks" / fingerprint


def one_ingest_at_a_time(root: Path) -> AbstractContextManager[None]:
    """Around the writing of prompts: what grades those of a run is noted before another ingest may change it."""
    path = lock_path(root, "ingest")
    path.parent.mkdir(parents=True, exist_ok=True)
    return exclusive_lock(path, timeout_seconds=float("inf"))


def worked_on_by(root: Path, fingerprint: str) -> str | None:
    """The id of the process that works on the step now; None when nobody does."""
    return holder(lock_path(root, fingerprint))


def interrupted_steps(warehouse: Warehouse) -> list[str]:
    """Steps of the newest snapshot that are recorded as running though nobody works on them.

    One that has ended since is among them, but a look at the snapshot after this call no longer has it running.
    """
    running = warehouse.snapshot_query(RUNNING)["fingerprint"].to_pylist()
    return [fingerprint for fingerprint in running if worked_on_by(warehouse.root, fingerprint) is None]
