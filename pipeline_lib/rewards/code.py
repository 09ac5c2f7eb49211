"""Code: the last ```python block must pass every test of the gold, in a sandbox; no credit for some of them.

The gold is JSON in one of the shapes of `code_tests`. verifier_args may raise or lower `cpu_seconds` of a test and
`memory_mb`. A program that is out of time is wrong, and its status is timeout.

What a right answer is stays outside of the program's process: printed output and returned values are compared here, and
asserts run in a process that gets nothing from the program but plain data. What remains possible is to know the tests:
a program that answers those that its prompt shows by heart passes them.
"""

from __future__ import annotations

import json
from typing import Any

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.code_tests import Call, Checks, Script, Test, read_tests, same_output
from pipeline_lib.rewards.extract import python_block
from pipeline_lib.rewards.sandbox import Launcher, Limits, OutOfTime, Session, Status, find_way
from pipeline_lib.rewards.sandbox.inside import wire
from pipeline_lib.rewards.verifier import RIGHT, TOO_SLOW, WRONG, Verifier


class Code(Verifier):
    """NoSandbox, a ValueError, where no sandbox holds on this machine."""

    isolated = True
    time_limit = Limits().total_seconds + 30

    def __init__(self) -> None:
        self._sandboxes = Launcher(find_way())

    def gold_problem(self, prompt: Prompt) -> str | None:
        try:
            read_tests(prompt.gold)
        except ValueError as error:
            return str(error)
        return None

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        return python_block(completion) or None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        tests = read_tests(prompt.gold)
        with Session(self._sandboxes, _limits(prompt), answer) as session:
            for test in tests:
                try:
                    status, right = _run(session, test)
                except OutOfTime:
                    return TOO_SLOW
                if not right:
                    return TOO_SLOW if status == "timeout" else WRONG
        return RIGHT


def _limits(prompt: Prompt) -> Limits:
    args = prompt.verifier_args
    cpu_seconds = float(args.get("cpu_seconds", Limits().cpu_seconds))
    return Limits(
        cpu_seconds=cpu_seconds,
        wall_seconds=3 * cpu_seconds,
        memory_mb=int(args.get("memory_mb", Limits().memory_mb)),
    )


def _run(session: Session, test: Test) -> tuple[Status, bool]:
    if isinstance(test, Checks):
        status = session.check(test.source)
        return status, status == "exited"
    if isinstance(test, Script):
        status, output = session.run(test.stdin)
        return status, status == "exited" and same_output(test.stdout, output)
    status, text = session.call(test.function, test.args)
    return status, status == "exited" and _returned(test, text)


def _returned(test: Call, text: str) -> bool:
    try:
        value: Any = wire.decode(json.loads(text))
        return test.is_right(value)
    except MemoryError:
        raise
    except Exception:  # the text is the program's, and may be anything
        return False
