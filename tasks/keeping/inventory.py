"""The files of a root, and to which step each belongs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.locks import worked_on_by
from warehouse import Warehouse

HIDDEN = "."
"""What begins with it is not finished: a killed writer's, or one that is at work."""


@dataclass(frozen=True)
class Output:
    """A directory that one step has written."""

    kind: str
    """rollouts, scores, features, … as in the lake; or stage."""
    path: Path
    fingerprint: str


def outputs_of_steps(root: Path) -> Iterator[Output]:
    for path in _directories(root, "lake/*/*"):
        yield Output(path.parent.name, path, path.name)
    for path in _directories(root, "stages/*/*-*"):
        yield Output("stage", path, path.name.rpartition("-")[2])


def policies(root: Path) -> list[Path]:
    return _directories(root, "policies/*")


def unfinished_files(root: Path) -> list[Path]:
    """What writers have under temporary names; of killed ones as long as nobody is at work."""
    found = [path for room in ("lake", "stages", "policies") for path in (root / room).rglob(".*.tmp")]
    return sorted({*found, *root.glob("policies/.*unnamed*")})


def steps_at_work(warehouse: Warehouse) -> list[str]:
    """Fingerprints of the steps that some process works on now."""
    running = warehouse.query("SELECT fingerprint FROM steps WHERE status = 'running'")["fingerprint"].to_pylist()
    return [fingerprint for fingerprint in running if worked_on_by(warehouse.root, fingerprint) is not None]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _directories(root: Path, pattern: str) -> list[Path]:
    return sorted(path for path in root.glob(pattern) if path.is_dir() and not path.name.startswith(HIDDEN))
