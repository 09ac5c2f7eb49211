"""Programs are graded by all of their tests, and a wrong one has no way to be called right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hostile import CHEATS

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rewards.verifier import RIGHT, TOO_SLOW, UNPARSEABLE, WRONG

SCRIPT = {"inputs": ["3 4\n", "10 -4\n"], "outputs": ["7\n", "6\n"]}
CALL = {"fn_name": "add", "inputs": [[3, 4], [10, -4]], "outputs": [7, 6]}
FUNCTIONAL = [{"input": "3\n4", "output": "7", "testtype": "functional", "metadata": {"func_name": "add"}}]
ASSERTS = ["assert add(3, 4) == 7", "assert add(10, b=-4) == 6"]
HUMAN_EVAL = {"test": "def check(candidate):\n    assert candidate(3, 4) == 7\n", "entry_point": "add"}
ADD = "def add(a, b):\n    return a + b\n"


def prompt(gold: Any, **args: Any) -> Prompt:
    return Prompt("test", ({"role": "user", "content": "?"},), json.dumps(gold), "code", args)


def fenced(program: str) -> str:
    return f"Let me see.\n```python\n{program}\n```\nDone."


def grade(gold: Any, program: str, **args: Any) -> Verdict:
    return get_verifier("code").grade(prompt(gold, **args), fenced(program))


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("a, b = map(int, input().split())\nprint(a + b)", RIGHT),
        ("import sys\nsys.stdout.write(f' {sum(map(int, sys.stdin.read().split()))}.0'[:-2])\nexit()", RIGHT),
        ("print(7)", WRONG),
        ("a, b = map(int, input().split())\nprint(a + b)\n1 / 0", WRONG),
        ("def", WRONG),
        ("while True: pass", TOO_SLOW),
    ],
)
def test_scripts(program: str, verdict: Verdict) -> None:
    assert grade(SCRIPT, program, cpu_seconds=1) == verdict


@pytest.mark.parametrize("gold", [CALL, FUNCTIONAL, ASSERTS, {"asserts": ASSERTS}, HUMAN_EVAL])
def test_functions(gold: Any) -> None:
    assert grade(gold, ADD) == RIGHT
    assert grade(gold, ADD.replace("+", "-")) == WRONG
    assert grade(gold, ADD.replace("add", "plus")) == WRONG


def test_a_method_of_a_solution_is_called_with_typing_at_hand() -> None:
    program = "class Solution:\n    def add(self, a: Optional[int], b: int) -> int:\n        return a + b"
    assert grade(CALL, program) == RIGHT


@pytest.mark.parametrize(
    "gold",
    [
        {"fn_name": "final", "inputs": [[3]], "outputs": [4]},
        ["assert Solution().final(3) == 4"],
        {"test": "def check(candidate):\n    assert candidate(3) == 4", "entry_point": "Solution().final"},
    ],
)
def test_a_method_goes_before_a_name_of_typing_and_has_an_object_of_its_own(gold: Any) -> None:
    program = "class Solution:\n    n = 0\n    def final(self, a): self.n += 1; return a + self.n"
    assert grade(gold, program) == RIGHT
    assert grade(gold, program.replace("+ self", "- self")) == WRONG


@pytest.mark.parametrize("gold", [CALL, ASSERTS])
def test_a_program_may_begin_with_an_import_from_the_future(gold: Any) -> None:
    assert grade(gold, f"from __future__ import annotations\n{ADD}") == RIGHT
    assert grade(gold, f'"""Adds."""\nfrom __future__ import annotations\n{ADD}') == RIGHT


def test_the_builtins_of_checks_are_pythons_whatever_the_program_defines() -> None:
    gold = ["assert len(pair(1)) == 2", "assert all(isinstance(n, int) for n in pair(1))"]
    cheat = "def len(x): return 2\ndef all(x): return True\ndef isinstance(*x): return True\n"
    assert grade(gold, f"{cheat}def pair(n): return n, n") == RIGHT
    assert grade(gold, f"{cheat}def pair(n): return [n]") == WRONG


def test_checks_have_setup_code_imports_and_expected_exceptions() -> None:
    setup = "import math\nLIMIT = 3\nclass Case:\n    n = 2"
    asserts = [
        "assert math.isclose(root(Case.n), 2**0.5)",
        "assert all(isinstance(root(i), float) for i in range(LIMIT))",
        "try:\n    root(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False",
        "assert pair() == (1, {2: {3}}) and pair() != [1, {2: {3}}]",
    ]
    program = "def root(x):\n    if x < 0: raise ValueError\n    return x**0.5\ndef pair(): return 1, {2: {3}}"
    assert grade({"setup": setup, "asserts": asserts}, program) == RIGHT
    assert grade({"setup": setup, "asserts": asserts}, program.replace("{3}", "[3]")) == WRONG


def test_a_function_that_never_returns_is_too_slow() -> None:
    program = "def add(a, b):\n    while True: pass"
    assert grade(ASSERTS, program, cpu_seconds=1) == TOO_SLOW
    assert grade(CALL, program, cpu_seconds=1) == TOO_SLOW


@pytest.mark.parametrize("program", CHEATS.values(), ids=CHEATS.keys())
@pytest.mark.parametrize(
    "gold", [{"inputs": ["3 4"], "outputs": ["7"]}, CALL, ASSERTS], ids=["script", "call", "asserts"]
)
def test_a_cheat_is_wrong(gold: Any, program: str) -> None:
    assert grade(gold, program, cpu_seconds=1) in (WRONG, TOO_SLOW)


@pytest.mark.parametrize(
    "check",
    [
        "assert all(map(lambda x: add(x, 1) == x + 1, [1, 2]))",
        "for got, want in zip(map(add, [1, 2], [1, 1]), [2, 3]):\n    assert got == want",
    ],
)
def test_a_program_ends_no_loop_of_its_check(check: str) -> None:
    assert grade([check], "def add(a, b): return a + b") == RIGHT
    assert grade([check], "def add(a, b): raise StopIteration") == WRONG


@pytest.mark.parametrize(
    "gold", [["assert key(1) == 'EXPECTED-7'"], {"fn_name": "key", "inputs": [[1]], "outputs": ["EXPECTED-7"]}]
)
def test_what_is_expected_is_nowhere_in_the_programs_process(gold: Any) -> None:
    program = """
import gc
def key(_):
    wanted = "EXPECTED" + "-7"
    everything = [*gc.get_objects(), *(e for t in gc.get_objects() if isinstance(t, dict) for e in list(t.values()))]
    return wanted if any(type(e) is str and wanted in e for e in everything) else None
"""
    assert grade(gold, program) == WRONG


def test_the_last_block_is_graded_and_nothing_else() -> None:
    verifier, right = get_verifier("code"), "print(sum(map(int, input().split())))"
    for completion, verdict in [
        (right, UNPARSEABLE),
        (f"```\n{right}\n```", UNPARSEABLE),
        (f"```python\n{right}", UNPARSEABLE),
        (f"{fenced(right)}\n{fenced('print(1)')}", WRONG),
        (f"{fenced('print(1)')}\n{fenced(right)}\n```bash\nls\n```", RIGHT),
    ]:
        assert verifier.grade(prompt(SCRIPT), completion) == verdict


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2) as grader:
        yield grader


def test_in_worker_processes_a_bad_program_has_no_effect_on_the_others(grader: Grader) -> None:
    right, gold = "print(sum(map(int, input().split())))", prompt(SCRIPT, cpu_seconds=1)
    programs = [right, "while True: pass", "import os\nwhile True: os.fork()", "a = bytearray(10**11)", right + "\n"]
    verdicts = grader.grade([(gold, fenced(program)) for program in programs])
    assert verdicts == [RIGHT, TOO_SLOW, WRONG, WRONG, RIGHT]


def test_a_program_that_ran_too_long_is_wrong_and_counted() -> None:
    assert TOO_SLOW.reward == 0 and TOO_SLOW.status == "timeout" and not TOO_SLOW.correct
