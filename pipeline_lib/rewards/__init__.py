"""Verifiers: what grades a completion against the gold answer, found by name."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from pipeline_lib.rewards.verifier import Verifier

# Import paths, so that a worker process imports the one verifier it needs and a run without
# reasoning-gym or sympy never pays for them.
VERIFIERS: dict[str, str] = {
    "exact": "pipeline_lib.rewards.exact:Exact",
    "numeric": "pipeline_lib.rewards.numeric:Numeric",
    "math": "pipeline_lib.rewards.math:Math",
    "multiple_choice": "pipeline_lib.rewards.multiple_choice:MultipleChoice",
    "code": "pipeline_lib.rewards.code:Code",
    "reasoning_gym": "pipeline_lib.rewards.reasoning_gym:ReasoningGym",
}


def get_verifier(name: str) -> Verifier:
    """The verifier registered under `name`; ValueError lists the known ones, or says why it cannot work here."""
    if name not in VERIFIERS:
        raise ValueError(f"unknown verifier {name!r}: must be one of {', '.join(sorted(VERIFIERS))}")
    return _load(VERIFIERS[name])


@lru_cache
def _load(target: str) -> Verifier:
    module, _, class_name = target.partition(":")
    verifier: Verifier = getattr(import_module(module), class_name)()
    return verifier
