"""rlsift sql: statements of the command line, a file, standard input or the shell."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from flows.commands.output import OutputFormat, cancelled_by_ctrl_c, check_output, write_answer
from warehouse import Limits, Warehouse
from warehouse.asking import split_statements


def run_sql(
    console: Console,
    messages: Console,
    warehouse: Warehouse,
    *,
    statement: str | None,
    file: Path | None,
    form: OutputFormat,
    out: Path | None,
    limits: Limits,
) -> None:
    """Run each statement and write its rows. Raises ValueError, WarehouseError."""
    check_output(form, out)
    if statement is not None and file is not None:
        raise ValueError(f"give either a statement or --file {file}")
    if statement is None and file is None and sys.stdin.isatty():
        if out is not None:
            raise ValueError(f"--out {out}: takes the rows of one statement; give it, or --file FILE")
        from flows.commands.shell import run_shell

        run_shell(console, messages, warehouse, form, limits)
        return
    if statement is None:
        name, read = ("standard input", sys.stdin.buffer.read()) if file is None else (str(file), file.read_bytes())
        statement = _decoded(read, name)
    statements = split_statements(statement)
    if not statements:
        raise ValueError("the statement is empty; give one, or --file FILE, or type it into the shell of `rlsift sql`")
    if out is not None and len(statements) > 1:
        raise ValueError(f"--out {out}: takes the rows of one statement; there are {len(statements)}")
    with cancelled_by_ctrl_c(messages):
        for sql in statements:
            with warehouse.asking(sql, limits=limits) as answer:
                write_answer(console, answer, form, out)


def _decoded(text: bytes, name: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ValueError(f"{name}, line {line}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
