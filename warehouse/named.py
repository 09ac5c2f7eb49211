"""Named queries for users: queries/public/NAME.sql, whose first lines say what it answers and what it asks for.

-- What the query answers, in one line.
-- $run VARCHAR: name of the run
-- $after INTEGER = 1: observations between the two that are compared, from 1 to 10

A number that is said to be from one to another must lie between them.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.errors import WarehouseError

TITLE = re.compile(r"-- (.+)")
PARAMETER = re.compile(r"-- \$(?P<name>\w+) (?P<type>\w+)( = (?P<default>\S+))?: (?P<about>.+)")
BOUNDS = re.compile(r"from (\d+) to (\d+)$")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


READERS: dict[str, Callable[[str], Any]] = {"VARCHAR": str, "INTEGER": int, "DOUBLE": _finite}


@dataclass(frozen=True)
class Parameter:
    """`default` is as it is typed; NULL leaves the parameter out; None where a value must be given."""

    name: str
    type: str
    about: str
    default: str | None

    def read(self, text: str) -> Any:
        """The typed value. Raises WarehouseError."""
        try:
            value = READERS[self.type](text)
        except ValueError as error:
            raise WarehouseError(f"{self.name} {text!r}: must be of type {self.type}; it is {self.about}") from error
        if (bounds := BOUNDS.search(self.about)) and not float(bounds[1]) <= value <= float(bounds[2]):
            raise WarehouseError(f"{self.name} {text}: is out of bounds; it is {self.about}")
        return value


@dataclass(frozen=True)
class NamedQuery:
    name: str
    title: str
    parameters: tuple[Parameter, ...]
    sql: str

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """A typed value for each parameter. Raises WarehouseError for one unknown, missing, or of another type."""
        known = {parameter.name: parameter for parameter in self.parameters}
        if unknown := [name for name in given if name not in known]:
            there = ", ".join(known) or "none"
            raise WarehouseError(f"query {self.name!r} has no parameter {unknown[0]!r}; its parameters are: {there}")
        values: dict[str, Any] = {}
        for name, parameter in known.items():
            text = given.get(name, parameter.default)
            if text is None:
                raise WarehouseError(f"query {self.name!r} needs {name} ({parameter.type}): {parameter.about}")
            values[name] = None if name not in given and text == "NULL" else parameter.read(text)
        return values


def find_query(name: str) -> NamedQuery:
    """The query of that name. Raises WarehouseError naming those that there are."""
    if name not in QUERIES:
        raise WarehouseError(f"no query is named {name!r}; there are {', '.join(QUERIES)}")
    return QUERIES[name]


def _read(path: Path) -> NamedQuery:
    sql = path.read_text()
    title, *rest = sql.splitlines()
    parameters = [
        Parameter(match["name"], match["type"], match["about"], match["default"])
        for line in rest
        if (match := PARAMETER.fullmatch(line))
    ]
    titled = TITLE.fullmatch(title)
    assert titled is not None, path
    return NamedQuery(path.stem, titled[1], tuple(parameters), sql)


QUERIES = {path.stem: _read(path) for path in sorted((Path(__file__).parent / "queries" / "public").glob("*.sql"))}
