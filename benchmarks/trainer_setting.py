"""What both sides of benchmarks/trainer.py are given and how they measure; needs neither rlsift nor TRL."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One case. `check` holds trajectories that both losses are given: token ids and behaviour log-probs."""

    policy: str
    """A directory that transformers loads, whose stop token lies outside the vocabulary and is never sampled."""
    prompts: list[list[dict[str, str]]]
    group_size: int
    completion_tokens: int
    """Of every completion: none ends before."""
    sequences_per_micro_batch: int
    tokens_per_micro_batch: int
    """The same number of sequences at the longest prompt's length."""
    learning_rate: float
    steps: int
    """Update steps of one process; the first is a warm-up."""
    threads: int
    check: list[dict[str, list[Any]]]

    @classmethod
    def read(cls, path: Path) -> Setting:
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))


def reward_of(sample_index: int) -> float:
    """Every second completion of a group is right, so that every group has signal."""
    return float(sample_index % 2)


def memory_mib(field: str) -> float:
    """Of this process from /proc. Not getrusage: ru_maxrss goes over from the parent that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
