"""Which checkpoints of a stage are whole: those whose marker is there and whose files have the checksums in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pipeline_lib.atomic import write_text

MARKER = "COMPLETE.json"

Signature = tuple[tuple[str, int, int, int], ...]

_whole: dict[Path, Signature] = {}
"""Checkpoints that this process has found whole, as the file system tells them; unchanged they are not read again."""


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step:06d}"


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def complete_checkpoints(directory: Path) -> list[Path]:
    """Oldest first."""
    return [path for path in sorted(directory.glob("step-*")) if _is_complete(path)]


def torn_checkpoints(directory: Path) -> list[Path]:
    """Those that are there and are not complete."""
    return [path for path in sorted(directory.glob("step-*")) if not _is_complete(path)]


def write_marker(checkpoint: Path) -> None:
    """The last file of a checkpoint."""
    files = sorted(file for file in checkpoint.rglob("*") if file.is_file())
    checksums = {str(file.relative_to(checkpoint)): _sha256(file) for file in files}
    write_text(checkpoint / MARKER, json.dumps(checksums))


def _is_complete(path: Path) -> bool:
    marker = path / MARKER
    if not marker.exists():
        return False
    signature = _signature(path)
    if _whole.get(path) == signature:
        return True
    try:
        checksums: dict[str, str] = json.loads(marker.read_bytes())
    except ValueError:  # a torn marker
        return False
    whole = all((path / n).exists() and _sha256(path / n) == digest for n, digest in checksums.items())
    if whole:
        _whole[path] = signature
    return whole


def _signature(path: Path) -> Signature:
    files = ((file, file.stat()) for file in sorted(path.rglob("*")))
    return tuple((str(file.relative_to(path)), s.st_ino, s.st_size, s.st_mtime_ns) for file, s in files)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
