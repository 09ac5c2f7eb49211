"""Chains: left-to-right arithmetic on digits modulo 10, the language of the built-in policy.

`3+5-2=?` is answered by `3+58;8-26|6`: each step with its result, `;` between steps, `|` before the answer.
The operations are + - * modulo 10 and ^, the larger of the two.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from random import Random

from pipeline_lib.config import ChainKind, ChainSource
from pipeline_lib.records import Prompt

MARKER = "|"
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "^": max,
}
SYMBOLS: dict[ChainKind, str] = {"plus": "+", "minus": "-", "times": "*", "max": "^"}


def read_chains(source: ChainSource) -> Iterator[tuple[int, Prompt]]:
    """Distinct prompts, `count` shared evenly by kind × length, the first cells taking what is left over.

    A cell with fewer questions than its share (100 for one operation of one kind) gives all it has.
    """
    random = Random(source.seed)
    cells = [(kind, length) for kind in source.kinds for length in source.lengths]
    share, left_over = divmod(source.count, len(cells))
    used: set[str] = set()
    for cell, (kind, length) in enumerate(cells):
        wanted = share + (cell < left_over)
        size = 10 ** (length + 1) * len(_patterns(kind, length))
        # At most len(used) of the drawn are taken: mixed chains of one operation are plus or minus.
        drawn = random.sample(range(size), min(size, wanted + len(used)))
        fresh = [text for text in (_question(kind, length, index) for index in drawn) if text not in used]
        for question in fresh[:wanted]:
            yield len(used), _prompt(question, kind, length)
            used.add(question)


def solution(question: str) -> str:
    """The worked solution of a question, as the built-in policy is first taught to write it."""
    expression = question.removesuffix("=?")
    value = int(expression[0])
    steps = []
    for symbol, digit in zip(expression[1::2], expression[2::2], strict=True):
        result = OPERATIONS[symbol](value, int(digit)) % 10
        steps.append(f"{value}{symbol}{digit}{result}")
        value = result
    return f"{';'.join(steps)}{MARKER}{value}"


def _prompt(question: str, kind: ChainKind, length: int) -> Prompt:
    return Prompt(
        data_source="chains",
        messages=({"role": "user", "content": question},),
        gold=solution(question).rpartition(MARKER)[2],
        verifier="exact",
        verifier_args={"marker": MARKER},
        extra={"kind": kind, "length": length},
    )


def _patterns(kind: ChainKind, length: int) -> range:
    """Which of the mixed chains' + and - are -, bit by bit; a single kind has one pattern."""
    if kind != "mixed":
        return range(1)
    return range(2) if length == 1 else range(1, 2**length - 1)


def _question(kind: ChainKind, length: int, index: int) -> str:
    """The question numbered `index` of a cell."""
    digits = f"{index % 10 ** (length + 1):0{length + 1}d}"
    pattern = _patterns(kind, length)[index // 10 ** (length + 1)]
    symbols = ["+-"[pattern >> i & 1] for i in range(length)] if kind == "mixed" else [SYMBOLS[kind]] * length
    return digits[0] + "".join(symbol + digit for symbol, digit in zip(symbols, digits[1:], strict=True)) + "=?"
