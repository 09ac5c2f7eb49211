"""What the confined processes do: run a program, call its functions for others, or check what they return.

The checks and the program never share a process: a program that patches builtins, overrides `==`, walks the frames or
ends early changes what it returns, and nothing else.
"""

from __future__ import annotations

import atexit
import builtins
import os
import symtable
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import wire


def run_to_end(work: Callable[[], None]) -> NoReturn:
    """Work, then end as Python does: threads joined, exit hooks run, output flushed, 0 if nothing was raised.

    Taking the interpreter apart as well would take longer than all of that.
    """
    code = 1
    try:
        _run_hooks(work)
        code = 0
    except SystemExit as end:
        code = 0 if end.code is None else end.code & 0xFF if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def run(source: str, **given: Any) -> dict[str, Any]:
    """Run a program as the main module, with these variables at hand; its variables."""
    main = types.ModuleType("__main__")
    main.__dict__.update(given)
    sys.modules["__main__"] = main
    exec(compile(source, "<program>", "exec"), main.__dict__)
    return main.__dict__


def call_once(source: str, name: str, args: list[Any], result: int) -> None:
    """Run a program, call one of its functions, or a method of its `Solution`, and send the value."""
    variables = run(source, **{name: getattr(typing, name) for name in typing.__all__})
    wire.send(result, wire.encode(_function(variables, name)(*args)))


def serve(source: str, requests: int, answers: int) -> None:
    """Run a program, then call its functions for another process until that one has ended."""
    variables = run(source)
    while True:
        try:
            name, args, kwargs = wire.receive(requests)
        except EOFError:
            return
        wire.send(answers, _answer(variables, name, wire.decode(args), wire.decode(kwargs)))


def check(source: str, requests: int, answers: int) -> None:
    """Run checks whose free names are functions of the served program. Ends with an exception where one fails."""

    def remote(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            wire.send(requests, [name, wire.encode(args), wire.encode(kwargs)])
            error, value = wire.receive(answers)
            if error is not None:
                raise _exception(error)
            return wire.decode(value)

        return call

    main = types.ModuleType("__main__")
    main.__dict__.update({name: remote(name) for name in free_names(source)})
    sys.modules["__main__"] = main
    exec(compile(source, "<checks>", "exec"), main.__dict__)


def free_names(source: str) -> set[str]:
    """The names that a piece of code reads, and neither makes itself nor finds among the builtins."""
    used, made = set(), set(dir(builtins))
    for table in _scopes(symtable.symtable(source, "<checks>", "exec")):
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                used |= {symbol.get_name()} if symbol.is_referenced() else set()
                made |= {symbol.get_name()} if symbol.is_assigned() or symbol.is_imported() else set()
    return used - made


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _run_hooks(work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()


def _answer(variables: dict[str, Any], name: str, args: Any, kwargs: Any) -> list[Any]:
    try:
        return [None, wire.encode(_function(variables, name)(*args, **kwargs))]
    except Exception as error:
        known = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
        return [known[0], None]


def _exception(name: Any) -> Exception:
    kind = getattr(builtins, str(name), None)
    # StopIteration would end the loop of the check that calls, before its assertion.
    ends_a_loop = isinstance(kind, type) and issubclass(kind, (StopIteration, StopAsyncIteration))
    if isinstance(kind, type) and issubclass(kind, Exception) and not ends_a_loop:
        return kind("raised by the program")
    return RuntimeError(f"the program raised {name}")


def _function(variables: dict[str, Any], name: str) -> Callable[..., Any]:
    solution: Any = variables.get("Solution")
    return getattr(solution(), name) if hasattr(solution, name) else variables[name]
