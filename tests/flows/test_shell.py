"""The shell of rlsift sql, typed into through a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from warehouse_rows import batch

from flows.commands import shell
from flows.commands.output import OutputFormat
from warehouse import Limits, Warehouse

CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(tmp_path_factory.mktemp("shell"))
    warehouse.write(batch("a"))
    warehouse.publish()
    return warehouse


@pytest.fixture
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def typed(warehouse: Warehouse, keyboard: PipeInput, text: str, limits: Limits = Limits()) -> tuple[str, str]:  # noqa: B008
    """What the shell printed, and said beside it, on these keys."""
    console, messages = (Console(file=io.StringIO(), width=200) for _ in range(2))
    keyboard.send_text(text)
    shell.run_shell(console, messages, warehouse, OutputFormat.table, limits)
    return console.file.getvalue(), messages.file.getvalue()  # type: ignore[attr-defined]


def test_a_statement_may_take_several_lines_and_ends_at_its_semicolon(
    warehouse: Warehouse, keyboard: PipeInput
) -> None:
    out, _ = typed(warehouse, keyboard, f"SELECT count(*) AS many{ENTER}FROM shards{ENTER};{ENTER}{CTRL_D}")
    assert "many" in out and "20" in out


def test_an_error_is_told_and_the_shell_goes_on(warehouse: Warehouse, keyboard: PipeInput) -> None:
    out, messages = typed(
        warehouse, keyboard, f"selec 1;{ENTER}DELETE FROM shards;{ENTER}SELECT 41 + 1 AS x;{ENTER}{CTRL_D}"
    )
    assert "syntax error" in messages and "DELETE is refused" in messages and "42" in out


def test_ctrl_c_drops_what_was_typed_and_ctrl_d_ends(warehouse: Warehouse, keyboard: PipeInput) -> None:
    out, messages = typed(warehouse, keyboard, f"SELECT 13{CTRL_C}SELECT 7 AS x;{ENTER}{CTRL_D}")
    assert "7" in out and "13" not in out and "error" not in messages


@pytest.mark.parametrize("word", ["exit", "quit;", ".exit", "\\q"])
def test_who_types_another_shells_word_is_let_out(warehouse: Warehouse, keyboard: PipeInput, word: str) -> None:
    out, messages = typed(warehouse, keyboard, f"{word}{ENTER}SELECT 13 AS x;{ENTER}{CTRL_D}")
    assert "13" not in out and "error" not in messages


def test_a_root_that_may_only_be_read_has_a_shell(
    warehouse: Warehouse, keyboard: PipeInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell.os, "access", lambda path, mode: False)  # root may write anywhere
    out, _ = typed(warehouse, keyboard, f"SELECT 'unkept' AS x;{ENTER}{CTRL_D}")
    assert "unkept" in out and "unkept" not in (warehouse.root / "sql_history").read_text()


def test_a_limit_is_told_with_its_remedy_and_the_shell_goes_on(warehouse: Warehouse, keyboard: PipeInput) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
    out, messages = typed(warehouse, keyboard, f"{endless};{ENTER}SELECT 8 AS x;{ENTER}{CTRL_D}", Limits(seconds=0.3))
    assert "ended after its 0.3 s" in messages and "--timeout" in messages and "8" in out


def test_each_statement_reads_the_newest_snapshot(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Session:
        rounds = iter(range(2))

        def prompt(self) -> str:
            if (number := next(self.rounds, None)) is None:
                raise EOFError
            warehouse.write(batch(f"more-{number}", 5))
            warehouse.publish()
            return "SELECT count(*) AS n FROM shards WHERE fingerprint LIKE 'more%';"

    monkeypatch.setattr(shell, "open_session", lambda warehouse: Session())
    shell.run_shell(Console(), Console(file=io.StringIO()), warehouse, OutputFormat.csv, Limits())
    assert capsys.readouterr().out.split() == ["n", "5", "n", "10"]


def test_the_history_is_kept_under_the_root(warehouse: Warehouse, keyboard: PipeInput) -> None:
    typed(warehouse, keyboard, f"SELECT 'kept' AS x;{ENTER}{CTRL_D}")
    assert "SELECT 'kept' AS x;" in (warehouse.root / "sql_history").read_text()
    out, _ = typed(warehouse, keyboard, f"{UP}{ENTER}{CTRL_D}")
    assert "kept" in out


def completions(warehouse: Warehouse, text: str) -> list[str]:
    names = shell.names_of(warehouse)
    return [found.text for found in names.get_completions(Document(text), CompleteEvent())]


def test_names_of_tables_views_columns_and_keywords_are_completed(warehouse: Warehouse) -> None:
    assert "prompt_difficulty_history" in completions(warehouse, "SELECT * FROM prompt_d")
    assert "n_correct" in completions(warehouse, "SELECT n_co")
    assert "SELECT" in completions(warehouse, "sel")
    assert completions(warehouse, "SELECT ") == []


def test_behind_a_table_and_a_dot_stand_its_columns(warehouse: Warehouse) -> None:
    assert completions(warehouse, "SELECT shards.sha") == ["shard_index", "sha256"]
    assert "pass_rate" in completions(warehouse, "SELECT h.pass")  # an alias: any column may follow
