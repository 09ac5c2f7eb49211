"""The tests of a programming task, from the shapes that data sets have, and when an answer to one is right.

A gold is JSON, one of:
  {"inputs": ["3 4\\n"], "outputs": ["7\\n"]}                           what is typed, and what must be printed
  {"fn_name": "add", "inputs": [[3, 4]], "outputs": [7]}               arguments of a call; its value, or [7] for 7
  [{"input": "3\\n4", "output": "7", "testtype": "functional", "fn_name": "add"}]   the same; arguments a line each
  ["assert add(3, 4) == 7"]                                            or {"setup": "...", "asserts": [...]}
  {"test": "def check(candidate): ...", "entry_point": "add"}          check(add) is called
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any

from pipeline_lib.rewards.sandbox.inside.program import free_names

TOLERANCE = 1e-6
"""Of decimal numbers, relative or absolute."""
_METHOD = re.compile(r"\bSolution\(\)\.(?=[^\W\d])")
_DECIMAL = re.compile(r"[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Script:
    """The program reads `stdin` and must print `stdout`."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class Call:
    """The program's function must return `value`; `wrapped`: or its one entry, as APPS writes values."""

    function: str
    args: list[Any]
    value: Any
    wrapped: bool = False

    def is_right(self, found: Any) -> bool:
        return same_value(self.value, found) or (self.wrapped and same_value(self.value[0], found))


@dataclass(frozen=True, slots=True)
class Checks:
    """Code that calls the program's functions, and raises where one is wrong."""

    source: str


Test = Script | Call | Checks


def read_tests(gold: str) -> list[Test]:
    """ValueError, saying what is wrong, for anything that is no gold of the above shapes."""
    try:
        return _read(gold)
    except RecursionError:
        raise ValueError("the tests are nested too deep to be read") from None


def _read(gold: str) -> list[Test]:
    try:
        found = json.loads(gold)
    except ValueError as error:
        raise ValueError(f"tests must be JSON: {error}") from None
    if isinstance(found, list) and found and all(isinstance(entry, str) for entry in found):
        return [_checks("\n".join(found))]
    if isinstance(found, list) and found and all(isinstance(entry, dict) for entry in found):
        return [_single(entry) for entry in found]
    if isinstance(found, dict) and isinstance(found.get("asserts"), list):
        return [_checks("\n".join([str(found.get("setup") or ""), *map(str, found["asserts"])]))]
    if isinstance(found, dict) and {"test", "entry_point"} <= found.keys():
        name = _METHOD.sub("", str(found["entry_point"]))
        if name in dir(builtins):  # the check would find Python's own, whatever the program is
            raise ValueError(f"entry_point {name!r} is a builtin of Python; give it a name of its own")
        return [_checks(f"{found['test']}\ncheck({name})")]
    if isinstance(found, dict) and {"inputs", "outputs"} <= found.keys():
        return _many(found)
    raise ValueError("tests must have inputs and outputs, or asserts, or test and entry_point")


def same_output(expected: str, found: str) -> bool:
    """Line by line and word by word; white space at the ends is nothing, decimal numbers may differ by TOLERANCE."""
    expected_lines, found_lines = expected.strip().splitlines(), found.strip().splitlines()
    if len(expected_lines) != len(found_lines):
        return False
    pairs = zip(expected_lines, found_lines, strict=True)
    return all(_same_words(one.split(), other.split()) for one, other in pairs)


def same_value(expected: Any, found: Any) -> bool:
    """Whether a returned value is the one from JSON: equal in Python, where True is 1 and 1 is 1.0.

    What JSON cannot say is forgiven: tuples pass for lists, keys for their text, decimal numbers within TOLERANCE.
    """
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(same_value, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        by_text = {str(key): value for key, value in found.items()}
        return expected.keys() == by_text.keys() and all(same_value(expected[key], by_text[key]) for key in expected)
    if isinstance(expected, float) and isinstance(found, float):
        return _close(expected, found)
    return bool(expected == found)


def _same_words(expected: list[str], found: list[str]) -> bool:
    return len(expected) == len(found) and all(map(_same_word, expected, found))


def _same_word(expected: str, found: str) -> bool:
    if expected == found:
        return True
    if not _DECIMAL.fullmatch(expected) or len(found) > 100:
        return False
    try:
        return _close(float(expected), float(found))
    except ValueError:
        return False


def _close(expected: float, found: float) -> bool:
    return math.isclose(expected, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _many(found: dict[str, Any]) -> list[Test]:
    inputs, outputs, function = found["inputs"], found["outputs"], found.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ValueError("inputs and outputs must be lists of one length, not empty")
    tests = [_test(function, given, wanted) for given, wanted in zip(inputs, outputs, strict=True)]
    return [replace(test, wrapped=_is_list_of_one(test.value)) if isinstance(test, Call) else test for test in tests]


def _is_list_of_one(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def _single(entry: dict[str, Any]) -> Test:
    if not {"input", "output"} <= entry.keys():
        raise ValueError("each test must have input and output")
    metadata = entry.get("metadata")
    function = entry.get("fn_name") or (metadata.get("func_name") if isinstance(metadata, dict) else None)
    if entry.get("testtype") == "functional" and function is None:
        raise ValueError("a functional test must name its function: fn_name, or metadata.func_name")
    return _test(None if entry.get("testtype") == "stdin" else function, entry["input"], entry["output"])


def _test(function: Any, given: Any, wanted: Any) -> Test:
    if function is None:
        return Script(_text(given), _text(wanted))
    if isinstance(given, str) and isinstance(wanted, str):
        return Call(str(function), [json.loads(line) for line in given.splitlines()], json.loads(wanted))
    if not isinstance(given, list):
        raise ValueError(f"the input of a call must be a list of arguments, found {type(given).__name__}")
    return Call(str(function), given, wanted)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"input and output must be text or a list of lines, found {type(value).__name__}")


def _checks(source: str) -> Checks:
    source = _METHOD.sub("", source)  # a method is called by its name alone, on a Solution of its own
    try:
        tree = ast.parse(source)
        asked = free_names(source)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"the checks are no Python: {error}") from None
    except MemoryError:  # so the parser says it
        raise RecursionError from None
    if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        raise ValueError("the checks assert nothing")
    if not asked:  # builtins are Python's own: a program that may replace len or all could answer any check
        raise ValueError("the checks use no name of the program's, only builtins of Python and names of their own")
    if "Solution" in asked:
        raise ValueError("a Solution cannot be kept by the checks; call its methods as Solution().name(...)")
    return Checks(source)
