"""math-verify without its own time limits: those use SIGALRM, which raises off the main thread.

Nothing here ends by itself on every input; `Grader` runs it in a process that it can kill.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import math_verify

# It warns once a process that its time limits are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


@lru_cache(maxsize=256)
def parse(text: str) -> list[Any]:
    """The sympy expressions math-verify reads in `text`; [] when it reads none."""
    delimited = "$" in text or "\\(" in text or "\\[" in text
    try:
        return math_verify.parse(
            text if delimited else f"\\boxed{{{text}}}",
            fallback_mode="no_fallback",
            parsing_timeout=None,
            raise_on_error=True,
        )
    except MemoryError:
        raise
    except Exception:  # whatever its grammar stumbles over is no expression
        return []


def equal(gold: list[Any], answer: list[Any]) -> bool:
    return math_verify.verify(gold, answer, timeout_seconds=None, raise_on_error=True)


def sound(gold: list[Any]) -> bool:
    """Whether an answer could be equal to it: 1/0 is not even equal to itself."""
    try:
        return equal(gold, gold)
    except MemoryError:
        raise
    except Exception:
        return False
