"""A stage that is tracked, and two steps of it."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.tracking import TrackedStage

FINGERPRINT = "0123456789abcdef"

STEPS: list[tuple[int, dict[str, float]]] = [
    (1, {"reward": 0.25, "clip_ratio/low_mean": 0.0, "num_tokens": 100.0, "rlsift/solved_all": 3.0}),
    (2, {"reward": 0.5, "clip_ratio/low_mean": 0.125, "num_tokens": 250.0, "rlsift/solved_all": 4.0}),
    (3, {"reward": 0.75, "num_tokens": 300.0, "rlsift/solved_all": 2.0}),  # no group was trained on
]
EVALUATION = {"eval/held-out/avg@8": 0.375, "eval/held-out/pass@8": 0.875}


def stage(root: Path, fingerprint: str = FINGERPRINT) -> TrackedStage:
    return TrackedStage(run="demo", stage=2, fingerprint=fingerprint, root=root)


def curves(steps: list[tuple[int, dict[str, float]]] = STEPS) -> dict[str, list[tuple[int, float]]]:
    """By metric, as a reader of the tracker's files should find them: (step, value), each once."""
    found: dict[str, list[tuple[int, float]]] = {}
    for step, metrics in steps:
        for name, value in metrics.items():
            found.setdefault(name, []).append((step, value))
    return found
