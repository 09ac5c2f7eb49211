"""What grading costs: answers a second of one core, for math with and without the cache, and for programs.

    PYTHONPATH=. .venv/bin/python benchmarks/verifiers.py            # a minute or two

Processor time of this process and of all below it, the start of the worker processes left out; so a busy machine
changes little. What a worker leaves behind when it ends, such as the warm parent of its sandboxes, becomes a child of
this process, and counts when it has ended. The first three math cases have one answer among their answers that makes
math-verify hang, and so costs its time limit twice: in its chunk, then alone. No such answer is remembered.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from machine import processor
from rich.console import Console
from rich.table import Table

from pipeline_lib.records import Prompt
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rewards.sandbox import find_way

Item = tuple[Prompt, str]

PATHOLOGICAL = r"\boxed{9^{9^{9^{9}}}}"
GROUP = 8
"""Equal answers, as the completions of one prompt often are."""
TIME_LIMIT = 2.0
PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 0.5

SCRIPT = "a, b = map(int, input().split())\nprint(a + b)"
FUNCTION = "def add(a, b):\n    return a + b"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    items: Sequence[Item]
    repeated: bool = False
    """Whether the same items are graded once before the clock starts."""


def prompt(gold: str, verifier: str) -> Prompt:
    return Prompt("benchmark", ({"role": "user", "content": f"{gold}?"},), gold, verifier)


def numbers(count: int) -> list[Item]:
    """Right and wrong in turn; no two alike."""
    return [(prompt(str(i), "math"), rf"So it is \boxed{{{i + i % 2:,}}}.") for i in range(1000, 1000 + count)]


def expressions(count: int) -> list[Item]:
    """What only math-verify can tell; no two alike."""
    return [(prompt(rf"\sqrt{{{i}}}", "math"), rf"\boxed{{{i}^{{\frac{{1}}{{2}}}}}}") for i in range(1, count + 1)]


def with_pathological(items: Sequence[Item]) -> list[Item]:
    middle = len(items) // 2
    return [*items[:middle], (items[0][0], PATHOLOGICAL), *items[middle:]]


def programs(source: str, gold: object, count: int) -> list[Item]:
    """No two alike."""
    return [(prompt(json.dumps(gold), "code"), f"```python\n# {i}\n{source}\n```") for i in range(count)]


def cases() -> list[Case]:
    tests = [(i, i + 1) for i in range(10)]
    script = {"inputs": [f"{a} {b}\n" for a, b in tests], "outputs": [str(a + b) for a, b in tests]}
    one = {key: values[:1] for key, values in script.items()}
    call = {"fn_name": "add", "inputs": [list(pair) for pair in tests], "outputs": [a + b for a, b in tests]}
    asserts = [f"assert add({a}, {b}) == {a + b}" for a, b in tests]
    hard = expressions(240)
    groups = [item for item in hard[: len(hard) // GROUP] for _ in range(GROUP)]
    return [
        Case("math: plain numbers", with_pathological(numbers(20_000))),
        Case("math: expressions", with_pathological(hard)),
        Case(f"math: expressions, each {GROUP} times", with_pathological(groups)),
        Case("math: expressions, seen before", hard, repeated=True),
        Case("math: expressions, none that hangs", hard),
        Case("code: 1 script test", programs(SCRIPT, one, 200)),
        Case("code: 10 script tests", programs(SCRIPT, script, 100)),
        Case("code: 10 calls", programs(FUNCTION, call, 100)),
        Case("code: 10 asserts", programs(FUNCTION, asserts, 200)),
    ]


def adopt_orphans() -> None:
    """Whatever loses its parent below this process becomes its child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def wait_for_orphans() -> None:
    """See those end that end by themselves; multiprocessing keeps one that does not."""
    deadline = time.monotonic() + PATIENCE
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cost(items: Sequence[Item]) -> float:
    """Processor seconds of grading these in a worker that starts for them and ends with them."""
    before = processor_seconds()
    with Grader(workers=1, time_limit=TIME_LIMIT) as grader:
        grader.grade(items)
    wait_for_orphans()
    return processor_seconds() - before


def cost_again(items: Sequence[Item]) -> float:
    """Processor seconds of grading these when all of them have been graded before."""
    with Grader(workers=1, time_limit=TIME_LIMIT) as grader:
        grader.grade(items)
        before = processor_seconds()
        grader.grade(items)
        return processor_seconds() - before


def main() -> None:
    table = Table("case", "answers", "processor seconds", "answers / s of one core")
    find_way()
    adopt_orphans()
    for case in cases():
        # The last item makes the worker start; it is no answer that hangs.
        seconds = cost_again(case.items) if case.repeated else cost(case.items) - cost(case.items[-1:])
        table.add_row(case.name, f"{len(case.items):,}", f"{seconds:.2f}", f"{len(case.items) / seconds:,.0f}")
    table.caption = f"{processor()}, {os.cpu_count()} cores, sandbox by {find_way()}"
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
