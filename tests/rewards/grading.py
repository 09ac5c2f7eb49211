"""A gold and a completion, graded by the verifier of that name."""

from __future__ import annotations

from typing import Any

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards import get_verifier


def prompt(gold: str, verifier: str, **args: Any) -> Prompt:
    return Prompt("test", ({"role": "user", "content": r"Put it in \boxed{34}."},), gold, verifier, args)


def grade(gold: str, completion: str, verifier: str, **args: Any) -> Verdict:
    return get_verifier(verifier).grade(prompt(gold, verifier, **args), completion)
