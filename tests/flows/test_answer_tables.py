"""Rows on the terminal: enough digits, and no word broken by a narrow column."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from flows.commands.tables import print_rows


def shown(rows: pa.Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(console, rows)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "0.25"),
        (333 / 1000, "0.333"),
        (1 / 3, "0.333333"),
        (0.1 + 0.2, "0.3"),
        (1234567.0, "1234567"),
        (123456789.5, "123456789.5"),
        (1e-9, "1e-09"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers_are_told_apart(value: float, text: str) -> None:
    assert f"│ {text} │" in shown(pa.table({"x": [value]}), 80)


def test_pass_rates_of_a_thousand_samples_are_told_apart() -> None:
    rates = [n / 1001 for n in range(1002)]
    text = shown(pa.table({"x": rates}), 80)
    assert len({line for line in text.splitlines() if line.startswith("│")}) == 1002


def test_no_text_commands_the_terminal() -> None:
    assert "│ \\x1b[2Jä │" in shown(pa.table({"x": ["\x1b[2Jä"]}), 80)


def test_a_table_too_wide_for_the_terminal_is_told_row_by_row() -> None:
    rows = pa.table({"prompt_id": ["0123456789abcdef", None], "pass_rate": [0.5, 1 / 3]})
    assert "┃ prompt_id" in shown(rows, 40)
    assert shown(rows, 30).split("\n") == [
        "─────────┬─ row 1",
        "prompt_id│ 0123456789abcdef",
        "pass_rate│ 0.5",
        "─────────┬─ row 2",
        "prompt_id│ —",
        "pass_rate│ 0.333333",
        "",
    ]
    assert "a│ 1\n │ 2\nb│ ffff" in shown(pa.table({"a": ["1\n2"], "b": ["f" * 64]}), 40)
    assert f"text│ {'long ' * 30}" in shown(pa.table({"text": ["long " * 30], "id": ["f" * 64]}), 40)
    assert "┃ text" in shown(pa.table({"text": ["long " * 30]}), 40)
