"""The shapes of tests, and when output and values are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.records import Prompt
from pipeline_lib.rewards.code_tests import Call, Checks, Script, read_tests, same_output, same_value
from pipeline_lib.rewards.extract import python_block
from pipeline_lib.rewards.sandbox.inside import wire
from pipeline_lib.rewards.sandbox.inside.program import free_names

numbers = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
keys = numbers | st.text(max_size=5) | st.binary(max_size=5) | st.none()
hashable = keys | st.tuples(keys, keys) | st.frozensets(keys, max_size=2)
values = hashable | st.lists(st.dictionaries(keys, st.sets(hashable, max_size=2), max_size=2), max_size=2)


@given(values)
def test_plain_data_survives_the_wire_with_its_types(value: Any) -> None:
    back = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert back == value and type(back) is type(value)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=20))
def test_what_encode_never_wrote_is_an_exception_or_plain_data(value: Any) -> None:
    try:
        back = wire.decode(value)
    except Exception:
        return
    wire.encode(back)


def test_subclasses_leave_what_they_override_behind() -> None:
    class Sly(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    class Row(dict[str, int]):
        def items(self) -> Any:
            return [("wrong", 1)]

    assert wire.encode(Sly(5)) == 5 and type(wire.encode(Sly(5))) is int
    assert wire.decode(wire.encode(Row(a=1))) == {"a": 1}
    with pytest.raises(TypeError, match="plain data"):
        wire.encode(object())


@pytest.mark.parametrize(
    ("gold", "tests"),
    [
        ({"inputs": ["1\n"], "outputs": ["2\n"]}, [Script("1\n", "2\n")]),
        ({"inputs": [["1", "2"]], "outputs": [["3", "4"]], "fn_name": None}, [Script("1\n2", "3\n4")]),
        ({"fn_name": "f", "inputs": [[1, [2]]], "outputs": [3]}, [Call("f", [1, [2]], 3)]),
        ([{"input": "1", "output": "2"}], [Script("1", "2")]),
        ([{"input": "1", "output": "2", "testtype": "stdin", "fn_name": "f"}], [Script("1", "2")]),
        ([{"input": '[1]\n"a"', "output": "2", "testtype": "functional", "fn_name": "f"}], [Call("f", [[1], "a"], 2)]),
        (["assert f(1)", "assert f(2)"], [Checks("assert f(1)\nassert f(2)")]),
        ({"asserts": ["assert f(1)"], "setup": "x = 1"}, [Checks("x = 1\nassert f(1)")]),
        ({"test": "def check(c): assert c()", "entry_point": "f"}, [Checks("def check(c): assert c()\ncheck(f)")]),
        (["assert Solution().two(1) == 1"], [Checks("assert two(1) == 1")]),
        (
            {"test": "def check(c): assert c()", "entry_point": "Solution().f"},
            [Checks("def check(c): assert c()\ncheck(f)")],
        ),
    ],
)
def test_shapes(gold: Any, tests: list[Any]) -> None:
    assert read_tests(json.dumps(gold)) == tests


@pytest.mark.parametrize(
    ("gold", "problem"),
    [
        ("{", "must be JSON"),
        ("7", "must have inputs and outputs"),
        ('{"test": "def check(f): assert f(2, 3) == 8", "entry_point": "pow"}', "'pow' is a builtin of Python"),
        ('{"test": "def check(f): assert f(g)", "entry_point": "Solution().pow"}', "'pow' is a builtin of Python"),
        ("[]", "must have inputs and outputs"),
        ('{"inputs": [], "outputs": []}', "not empty"),
        ('{"inputs": ["1"], "outputs": ["1", "2"]}', "one length"),
        ('{"inputs": [{}], "outputs": ["1"]}', "text or a list"),
        ('{"inputs": [1], "outputs": ["1"], "fn_name": "f"}', "list of arguments"),
        ('[{"input": "1", "output": "1", "testtype": "functional"}]', "name its function"),
        ('[{"input": "x", "output": "1", "testtype": "functional", "fn_name": "f"}]', "Expecting value"),
        ('[{"input": "1"}]', "input and output"),
        ('["f(1)"]', "assert nothing"),
        ('["assert f("]', "no Python"),
        ('["assert pow(2, 3) == 8", "n = 2", "assert n == 2"]', "use no name of the program's"),
        ('["s = Solution()", "assert s.two(1)"]', "as Solution().name(...)"),
        ('[{"input": "' + "[" * 10**5 + '", "output": "1", "fn_name": "f"}]', "nested too deep"),
        ("[" * 10**5, "nested too deep"),
        (json.dumps(["assert f(" + "-" * 10**5 + "1)"]), "nested too deep"),
    ],
)
def test_a_gold_that_cannot_be_graded_against_says_why(gold: str, problem: str) -> None:
    from pipeline_lib.rewards.code import Code

    prompt = Prompt("test", ({"role": "user", "content": "?"},), gold, "code")
    assert problem in (Code.gold_problem(Code.__new__(Code), prompt) or "")


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("7\n", "7", True),
        ("1 2\n3\n", " 1  2 \n3\n\n", True),
        ("1 2\n3", "1 2 3", False),
        ("", "\n", True),
        ("", "0", False),
        ("0.5", "0.50000001", True),
        ("0.5", "5e-1", True),
        ("0.5", "0.51", False),
        ("0.5", "nan", False),
        ("0.5", "x", False),
        ("7", "7.0", False),
        ("1000000", "1000001", False),
        ("YES", "Yes", False),
    ],
)
def test_outputs(expected: str, found: str, same: bool) -> None:
    assert same_output(expected, found) is same


def test_values() -> None:
    assert same_value([1, [2, "a"]], (1, (2, "a")))
    assert same_value({"1": 0.1}, {1: 0.1 + 1e-9})
    assert not same_value([1], [1, 2]) and not same_value([1], {1}) and not same_value({"a": 1}, {"b": 1})
    assert same_value(1, True) and same_value(True, 1) and same_value([1], (1.0,)) and not same_value("1", 1)


def test_a_list_of_one_stands_for_its_value_in_the_shape_of_apps_alone() -> None:
    def right(value: Any, found: Any) -> bool:
        [test] = read_tests(json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [value]}))
        return isinstance(test, Call) and test.is_right(found)

    assert right([[1, 2]], [1, 2]) and right([[1, 2]], [[1, 2]]) and right([5], 5) and right([5], (5,))
    assert not right([1, 2], 1) and not right(5, [5]) and not right([], None)
    [test] = read_tests(json.dumps([{"input": "1", "output": "[5]", "testtype": "functional", "fn_name": "f"}]))
    assert isinstance(test, Call) and test.is_right([5]) and not test.is_right(5)


@given(
    st.lists(
        st.sampled_from(["```python", "```", "```py x", "``` ", "````", "~~~py", "~~~", "a = 1", "  b", ""]),
        max_size=12,
    )
)
def test_any_mix_of_fences_is_safe(lines: list[str]) -> None:
    block = python_block("\n".join(lines))
    assert block is None or set(block.splitlines()) <= {*lines, ""}


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```python\na\n```\n```Python\nb\n```", "b\n"),
        ("  ```python3\n  a\n  ```", "  a\n"),
        ("```\n```python\n```\n", None),
        ("```python\na\n```\n```python\nb", ""),
        ("```js\na\n```", None),
        ('````python\na = """\n```\n"""\n````', 'a = """\n```\n"""\n'),
        ("~~~python\na\n```\nb\n~~~~", "a\n```\nb\n"),
        ("```python\na\n~~~\nb\n```", "a\n~~~\nb\n"),
        ("````\n```python\na\n```\n````", None),
        ("````python\na\n```", ""),
        ("Write\n```python print(1)```\nor\n```python\na\n```", "a\n"),
        ('```python\r\na = "\u2028\x0c"\r\n```', 'a = "\u2028\x0c"\r\n'),
        ('```python\na = "```"\n```', 'a = "```"\n'),
        ("", None),
    ],
)
def test_python_blocks(text: str, block: str | None) -> None:
    assert python_block(text) == block


def test_free_names() -> None:
    source = """
import os.path as p
from math import pi
def check(c, *rest, **more):
    try: return [x for x in c(f(1))] + [p, pi, len, rest, more]
    except KeyError as error: print(error)
y: int = g.h(lambda z: z)
"""
    assert free_names(source) == {"f", "g"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("assert [f for f in range(3)] == f(3)", {"f"}),
        ("def check(c):\n    result = c()\n    assert result\ncheck(result)", {"result"}),
        ("def setup():\n    global limit\n    limit = 3\nsetup()\nassert f() < limit", {"f"}),
        ("class Case:\n    n = f(1)\n    m = n\nassert Case.m", {"f"}),
        ("for i in range(3):\n    assert (y := f(i)) and y", {"f"}),
        ("assert all(f(i) == (lambda j: j + i)(1) for i in range(3))", {"f"}),
    ],
)
def test_names_are_free_by_their_scope(source: str, names: set[str]) -> None:
    assert free_names(source) == names
