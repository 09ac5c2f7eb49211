"""Limits of one untrusted program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each test is a process of its own under all of these but the last."""

    cpu_seconds: float = 4.0
    """Processor time, in whole seconds or rounded up to them; a loaded machine does not change it."""
    wall_seconds: float = 12.0
    memory_mb: int = 1024
    """Address space, the stacks of threads included."""
    threads: int = 16
    """Other processes are not to be had at all."""
    file_mb: int = 16
    """Of one file, and of everything in /tmp, the only place where a program can write."""
    output_mb: int = 4
    total_seconds: float = 60.0
    """Of all tests of a program together."""
