"""rlsift query: the named queries of warehouse/queries/public."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from flows.commands.output import OutputFormat, cancelled_by_ctrl_c, check_output, write_answer
from flows.commands.status import the_run
from warehouse import Limits, Warehouse, WarehouseError
from warehouse.asking import quoted
from warehouse.named import QUERIES, NamedQuery, Parameter, find_query

PROMPT = "SELECT 1 FROM prompts WHERE prompt_id = {}"


def list_queries(console: Console) -> None:
    """Each query with what it answers and its parameters, those that may be left out in brackets."""
    for query in QUERIES.values():
        asked = " ".join(_option(parameter) for parameter in query.parameters)
        for text in (f"{query.name} {asked}", f"    {query.title}"):
            console.print(text, highlight=False, soft_wrap=True)


def run_query(
    console: Console,
    messages: Console,
    warehouse: Warehouse,
    name: str,
    options: Sequence[str],
    *,
    form: OutputFormat,
    out: Path | None,
    limits: Limits,
) -> None:
    """Run a query with the parameters in `options` and write its rows. Raises ValueError, WarehouseError."""
    check_output(form, out)
    query = find_query(name)
    given = read_options(options)
    if "run" not in given and _must_be_given(query, "run"):
        given["run"] = the_run(warehouse, None)
    values = query.values(given)
    for name, value in given.items():
        _check_there(warehouse, name, value)
    with cancelled_by_ctrl_c(messages), warehouse.asking(query.sql, values, limits=limits) as answer:
        write_answer(console, answer, form, out)


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Of `--name value` and `--name=value`. Raises ValueError."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if not name.startswith("--") or not (has_value or rest):
            raise ValueError(f"{name}: parameters have the form --name value; `rlsift query` lists them")
        if name.removeprefix("--") in options:
            raise ValueError(f"{name}: is given twice; give it once")
        options[name.removeprefix("--")] = value if has_value else rest.pop(0)
    return options


def _check_there(warehouse: Warehouse, parameter: str, value: str) -> None:
    """An unknown name would have an empty answer, as a run has that tells nothing. Raises WarehouseError."""
    if parameter in ("run", "other"):
        the_run(warehouse, value)
    elif parameter == "prompt" and not warehouse.snapshot_query(PROMPT.format(quoted(value))).num_rows:
        raise WarehouseError(f"no prompt has the id {value!r} under {warehouse.root}; `FROM prompts` lists them all")


def _must_be_given(query: NamedQuery, name: str) -> bool:
    return any(parameter.name == name and parameter.default is None for parameter in query.parameters)


def _option(parameter: Parameter) -> str:
    option = f"--{parameter.name} {parameter.type}"
    if parameter.default is None:
        return option
    return f"[{option}]" if parameter.default == "NULL" else f"[{option} = {parameter.default}]"
