"""The interactive shell of rlsift sql: each statement reads the newest snapshot."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from rich.console import Console

from flows.commands.output import OutputFormat, limit_in_words, print_error, write_answer
from warehouse import LimitReached, Limits, Warehouse, WarehouseError
from warehouse.asking import is_finished, split_statements

COLUMNS = """
    SELECT table_name, column_name FROM duckdb_columns()
    WHERE database_name = 'warehouse' AND NOT internal ORDER BY table_name, column_index
"""
KEYWORDS = "SELECT upper(keyword_name) AS word FROM duckdb_keywords() ORDER BY 1"
WORD = re.compile(r"(?:(\w+)\.)?(\w*)$")


class Names(Completer):
    """Tables, views, columns and keywords; behind `table.` the columns of that table."""

    def __init__(self, columns: Sequence[tuple[str, str]], keywords: Sequence[str]) -> None:
        self.columns: dict[str, list[str]] = {}
        for table, column in columns:
            self.columns.setdefault(table, []).append(column)
        self.all_columns = sorted({column for _, column in columns})
        self.words = [*self.columns, *self.all_columns, *keywords]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        match = WORD.search(document.text_before_cursor)
        assert match is not None  # of nothing, at least
        table, begun = match[1], match[2].lower()
        if table is None and not begun:
            return
        # An alias is not known here: behind it any column may follow.
        words = self.words if table is None else self.columns.get(table, self.all_columns)
        yield from (Completion(word, -len(begun)) for word in words if word.lower().startswith(begun))


def names_of(warehouse: Warehouse) -> Names:
    columns = [(row["table_name"], row["column_name"]) for row in warehouse.ask(COLUMNS).to_pylist()]
    return Names(columns, warehouse.ask(KEYWORDS)["word"].to_pylist())


def open_session(warehouse: Warehouse) -> PromptSession[str]:
    """Enter sends what ends in a semicolon, and begins a new line else; the history stays under the root."""
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text) or not buffer.text.strip() or _ends(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return PromptSession(
        "rlsift> ",
        multiline=True,
        prompt_continuation="   ...> ",
        history=_history(warehouse.root),
        completer=names_of(warehouse),
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=keys,
    )


def _ends(text: str) -> bool:
    return text.strip(" \n;") in ("exit", "quit", ".exit", ".quit", "\\q")


def _history(root: Path) -> History:
    """Kept under the root, but for a root that somebody may only read."""
    path = root / "sql_history"
    may_write = os.access(path if path.exists() else root, os.W_OK)
    return FileHistory(str(path)) if may_write else InMemoryHistory()


def run_shell(console: Console, messages: Console, warehouse: Warehouse, form: OutputFormat, limits: Limits) -> None:
    """Read statements and run them until Ctrl-D or `exit`."""
    session = open_session(warehouse)
    messages.print(
        f"{warehouse.snapshot_path}: a statement ends in ;, Ctrl-C cancels one, Ctrl-D ends.", soft_wrap=True
    )
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if _ends(text):
            return
        for sql in split_statements(text):
            if not run_statement(console, messages, warehouse, sql, form, limits):
                break


def run_statement(
    console: Console, messages: Console, warehouse: Warehouse, sql: str, form: OutputFormat, limits: Limits
) -> bool:
    """Write the rows of one statement, or say why there are none; whether it went through."""
    try:
        with warehouse.asking(sql, limits=limits) as answer:
            write_answer(console, answer, form, None)
        sys.stdout.flush()
    except WarehouseError as error:
        text = limit_in_words(error) if isinstance(error, LimitReached) else str(error)
        print_error(messages, text)
        return False
    except KeyboardInterrupt:
        messages.print("Cancelled.")
        return False
    return True
