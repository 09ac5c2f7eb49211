"""What grading costs: answers a second of one core, for math with and without the cache, and for programs.

    PYTHONPATH=. .venv/bin/python benchmarks/verifiers.py            # a minute or two

Processor time of this process and of all below it, the start of the worker processes left out; so a busy machine
changes little. Every math case but the last has one answer among its answers that makes math-verify hang.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Sequence
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

SCRIPT = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
FUNCTION = "```python\ndef add(a, b):\n    return a + b\n```"


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


def programs(completion: str, gold: object, count: int) -> list[Item]:
    return [(prompt(json.dumps(gold), "code"), f"{completion}\n{i}") for i in range(count)]


def cases() -> list[Case]:
    tests = [(i, i + 1) for i in range(10)]
    script = {"inputs": [f"{a} {b}\n" for a, b in tests], "outputs": [str(a + b) for a, b in tests]}
    one = {key: values[:1] for key, values in script.items()}
    call = {"fn_name": "add", "inputs": [list(pair) for pair in tests], "outputs": [a + b for a, b in tests]}
    asserts = [f"assert add({a}, {b}) == {a + b}" for a, b in tests]
    hard = expressions(400)
    groups = [item for item in hard[: len(hard) // GROUP] for _ in range(GROUP)]
    return [
        Case("math: plain numbers", with_pathological(numbers(20_000))),
        Case("math: expressions", with_pathological(hard)),
        Case(f"math: expressions, each {GROUP} times", with_pathological(groups)),
        Case("math: expressions, seen before", with_pathological(hard), repeated=True),
        Case("math: expressions, none that hangs", hard),
        Case("code: 1 script test", programs(SCRIPT, one, 30)),
        Case("code: 10 script tests", programs(SCRIPT, script, 20)),
        Case("code: 10 calls", programs(FUNCTION, call, 20)),
        Case("code: 10 asserts", programs(FUNCTION, asserts, 30)),
    ]


def processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def clocked(work: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds; children count once they have ended."""
    before, started = processor_seconds(), time.perf_counter()
    work()
    return processor_seconds() - before, time.perf_counter() - started


def grade(case: Case) -> Callable[[], None]:
    def work() -> None:
        with Grader(workers=1, time_limit=TIME_LIMIT) as grader:
            for _ in range(2 if case.repeated else 1):
                grader.grade(case.items)

    return work


def started_worker(case: Case) -> Callable[[], None]:
    """Nothing but what must be paid once: the worker process, or the first time over the items."""

    def work() -> None:
        with Grader(workers=1, time_limit=TIME_LIMIT) as grader:
            grader.grade(case.items if case.repeated else case.items[-1:])

    return work


def main() -> None:
    table = Table("case", "answers", "processor seconds", "answers / s of one core", "wall seconds")
    find_way()
    for case in cases():
        first, _ = clocked(started_worker(case))
        seconds, wall = clocked(grade(case))
        spent = max(seconds - first, 1e-6)
        rate = f"{len(case.items) / spent:,.0f}"
        table.add_row(case.name, f"{len(case.items):,}", f"{spent:.2f}", rate, f"{wall:.1f}")
    table.caption = f"{processor()}, {os.cpu_count()} cores, sandbox by {find_way()}"
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
