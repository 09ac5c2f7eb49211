"""rlsift sql, query, schema and snapshot: what they print and write, and how they end."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from flow_cases import command, environment, in_this_process, rlsift, wait_until
from history_cases import ASKED, of_version_1
from warehouse_rows import run, table

from warehouse import Warehouse
from warehouse.asking import LOST

ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) AS a, range(100000000) AS b"
ENDLESS_QUERY = f"""
import sys
from warehouse import named
from flows.cli import app
named.QUERIES["endless"] = named.NamedQuery("endless", "Endless.", (), {ENDLESS!r})
app(["query", "endless", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = Warehouse(tmp_path_factory.mktemp("asked"))
    warehouse.write(ASKED)
    warehouse.publish()
    return warehouse.root


def test_a_file_of_statements_is_answered_in_turn(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "two.sql"
    file.write_text("-- two\nSELECT 1 AS x;\nSELECT ';' AS y; -- and no more\n")
    assert in_this_process(capsys, "sql", "-f", file, "--format", "csv", "--root", root) == (0, "x\n1\ny\n;\n", "")


def test_a_file_that_is_not_utf_8_is_named_with_its_line(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "old.sql"
    file.write_bytes("SELECT 1;\nSELECT 'ä'".encode("latin-1"))
    code, _, error = in_this_process(capsys, "sql", "-f", file, "--root", root)
    assert code == 2 and f"{file}, line 2: is not UTF-8" in error
    file.write_bytes("SELECT 'ä' AS x".encode("utf-8-sig"))
    assert in_this_process(capsys, "sql", "-f", file, "--format", "csv", "--root", root) == (0, "x\nä\n", "")


def test_standard_input_is_read_where_it_is_no_terminal(root: Path) -> None:
    answer = subprocess.run(
        command("sql", "--format", "json", "--root", root),
        input="SELECT 1 AS x; SELECT 2 AS x",
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, '{"x": 1}\n{"x": 2}\n', "")


def test_each_format_reaches_its_file_whole(capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path) -> None:
    sql = "SELECT range AS x, [range] AS l, 'ä,b' AS t FROM range(110_000)"
    for form in ("csv", "json", "parquet"):
        out = tmp_path / f"rows.{form}"
        assert in_this_process(capsys, "sql", sql, "--format", form, "--out", out, "--root", root) == (0, "", "")
    assert pq.read_table(tmp_path / "rows.parquet")["x"].to_pylist() == list(range(110_000))
    lines = [json.loads(line) for line in (tmp_path / "rows.json").read_text("utf-8").splitlines()]
    assert (len(lines), lines[-1]) == (110_000, {"x": 109_999, "l": [109_999], "t": "ä,b"})
    with open(tmp_path / "rows.csv", encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert (len(read), read[-1]) == (110_000, {"x": "109999", "l": "[109999]", "t": "ä,b"})


def test_an_error_half_way_leaves_the_file_as_it_was(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("before")
    sql = "SELECT CASE WHEN i = 900000 THEN 'x' ELSE '1' END::INTEGER FROM range(1_000_000) AS t (i)"
    code, _, error = in_this_process(capsys, "sql", sql, "--format", "csv", "--out", out, "--root", root)
    assert code == 2 and ("Conversion Error" in error or LOST in error)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"] and out.read_text() == "before"


def test_a_long_answer_is_cut_on_the_terminal_and_says_so(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, _ = in_this_process(capsys, "sql", "SELECT range AS x FROM range(300_000)", "--root", root)
    assert code == 0 and "200 of 300000 rows shown; --format csv, json or parquet gives them all." in out
    assert " 199 " in out and " 200 " not in out


def test_what_is_said_of_a_limit_names_it_and_the_flag(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, error = in_this_process(capsys, "sql", ENDLESS, "--timeout", "0.3", "--root", root)
    assert (code, out) == (3, "") and "ended after its 0.3 s" in error and "--timeout SECONDS" in error
    big = "SELECT string_agg(i::VARCHAR, ',') FROM range(30_000_000) AS t (i)"
    code, out, error = in_this_process(capsys, "sql", big, "--memory", "100MB", "--root", root)
    assert (code, out) == (3, "") and "more than its 100MB of memory" in error and "--memory SIZE" in error


@pytest.mark.parametrize("asked", ["sql", "query"])
def test_ctrl_c_cancels_a_statement(root: Path, tmp_path: Path, asked: str) -> None:
    endless = [sys.executable, "-c", ENDLESS_QUERY] if asked == "query" else command("sql", ENDLESS)
    process = subprocess.Popen(
        [*endless, "--root", str(root)],
        env=environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any(tmp_path.glob("rlsift-*")), "directory that the statement would spill to")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "Cancelled.\n")


def test_a_terminal_gets_the_shell(root: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = environment(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
    process = subprocess.Popen(command("sql", "--root", root), env=terminal, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = bytearray()

    def has_shown(text: bytes) -> bool:
        if select.select([ours], [], [], 0.1)[0]:
            with suppress(OSError):  # the terminal went with the process
                seen.extend(os.read(ours, 4096))
        return text in seen

    wait_until(lambda: has_shown(b"rlsift>"), "prompt")
    os.write(ours, b"SELECT 40 + 2 AS answer;\r")
    wait_until(lambda: has_shown(b"42"), "answer")
    while process.poll() is None:  # Ctrl-D that comes before the prompt is lost
        with suppress(OSError):
            os.write(ours, b"\x04")
        has_shown(b"")
        time.sleep(0.2)
    assert process.returncode == 0
    os.close(ours)


def test_the_named_queries_are_listed_with_their_parameters(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, _ = in_this_process(capsys, "query")
    assert code == 0
    assert "zero_variance_persistence --run VARCHAR [--after INTEGER = 1]\n    How many zero-variance prompts" in out
    assert "prompt_history --prompt VARCHAR [--run VARCHAR]\n" in out
    assert "report_run" not in out


def test_a_named_query_takes_its_parameters(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    code, out, _ = in_this_process(
        capsys, "query", "zero_variance_persistence", "--after=2", "--run", "r", "--format", "csv", "--root", root
    )
    assert code == 0
    assert [(row["class"], row["n_pairs"]) for row in csv.DictReader(io.StringIO(out))] == [
        ("all_right", "2"),
        ("all_wrong", "3"),
    ]


def test_the_only_run_need_not_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.write(dict(ASKED) | {"runs": table(run("r", stages=2))})
    warehouse.publish()
    code, out, _ = in_this_process(capsys, "query", "selection_overlap", "--format", "csv", "--root", tmp_path)
    assert (code, out) == (0, "stage_a,stage_b,n_a,n_b,n_both,jaccard\n1,2,3,2,1,0.25\n")


ERRORS: dict[str, tuple[Sequence[str], str]] = {
    "unknown query": (["query", "histroy"], "no query is named 'histroy'; there are came_back, "),
    "unknown parameter": (["query", "came_back", "--run", "r", "--stage", "1"], "no parameter 'stage'"),
    "missing parameter": (["query", "prompt_history"], "needs prompt (VARCHAR)"),
    "no value": (["query", "came_back", "--run"], "--run: parameters have the form --name value"),
    "another type": (["query", "came_back", "--run", "r", "--limit", "x"], "limit 'x': must be of type INTEGER"),
    "no run": (["query", "came_back"], "more than one run is there"),
    "unknown table": (["schema", "shard"], "no table or view is named 'shard'; there are diagnoses, "),
    "parquet to the terminal": (["sql", "SELECT 1", "--format", "parquet"], "name it by --out FILE"),
    "a table to a file": (["sql", "SELECT 1", "--out", "rows.txt"], "give --format csv, json or parquet"),
    "two at once": (["sql", "SELECT 1", "-f", "a.sql"], "give either a statement or --file a.sql"),
    "two into one file": (["sql", "SELECT 1; SELECT 2", "--format", "csv", "--out", "a.csv"], "there are 2"),
    "no such file": (["sql", "-f", "none.sql"], "none.sql"),
    "memory": (["sql", "SELECT 1", "--memory", "much"], "memory 'much'"),
    "memory below nothing": (["sql", "SELECT 1", "--memory", "-1"], "memory '-1': give a number with its unit"),
    "no memory": (["sql", "SELECT 1", "--memory", "0MB"], "memory '0MB': give a number with its unit"),
    "too much memory": (["sql", "SELECT 1", "--memory", f"{10**15}TB"], "give a number with its unit"),
    "no number": (["query", "hard_among_skipped", "--run", "r", "--hard", "nan"], "hard 'nan': must be of type DOUBLE"),
    "out of bounds": (
        ["query", "zero_variance_persistence", "--run", "r", "--after", "11"],
        "after 11: is out of bounds; it is observations of the prompt later, from 1 to 10",
    ),
    "unknown prompt": (["query", "prompt_history", "--prompt", "x"], "no prompt has the id 'x' under"),
    "to a directory": (["sql", "SELECT 1", "--format", "csv", "--out", "/dev"], "/dev: is there, and is no regular"),
    "to a device": (["sql", "SELECT 1", "--format", "parquet", "--out", "/dev/null"], "/dev/null: is there, and is no"),
    "to nowhere": (["sql", "SELECT 1", "--format", "parquet", "--out", "/proc/x"], "error: /proc/x: No such file"),
    "an interval into parquet": (
        ["sql", "SELECT INTERVAL 1 DAY AS i", "--format", "parquet", "--out", "none.parquet"],
        "write its column as text, as x::VARCHAR",
    ),
}


@pytest.mark.parametrize(("args", "words"), ERRORS.values(), ids=ERRORS.keys())
def test_what_cannot_be_done_is_told_in_words(
    capsys: pytest.CaptureFixture[str], root: Path, args: Sequence[str], words: str
) -> None:
    code, out, error = in_this_process(capsys, *args, "--root", root)
    assert (code, out) == (2, "") and words in error.replace("\n", " ")


@pytest.mark.parametrize(
    "args",
    [
        ("status",),
        ("status", "run_id 0"),
        ("sql", "FROM run_progress", "--format", "csv"),
        ("query", "came_back", "--run", "run_id 0"),
        ("schema", "run_progress"),
        ("watch", "run_id 0", "--once"),
        ("report", "run_id 0"),
        ("doctor", "run_id 0"),
        ("snapshot",),
    ],
    ids=" ".join,
)
def test_each_command_brings_an_older_snapshot_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, args: Sequence[str]
) -> None:
    before = of_version_1(tmp_path).snapshot_path.resolve()
    code, out, _ = in_this_process(capsys, *args, "--root", tmp_path)
    assert code == 0 and out
    assert (tmp_path / "warehouse.snapshot.duckdb").resolve() != before


def test_schema_says_what_each_column_is(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    _, everything, _ = in_this_process(capsys, "schema", "--root", root)
    assert "prompt_difficulty (view): The latest observation of every prompt of a run.\n" in everything
    code, one, _ = in_this_process(capsys, "schema", "run_steps", "--root", root)
    assert code == 0 and one in everything
    first, *columns = one.splitlines()
    assert first == "run_steps (table): Which step a run takes at each stage."
    assert [line.split()[:2] for line in columns] == [
        ["run_id", "VARCHAR"],
        ["stage", "INTEGER"],
        ["name", "VARCHAR"],
        ["fingerprint", "VARCHAR"],
    ]
    assert columns[1].endswith("0 is before any training")


def test_snapshot_says_where_it_is(root: Path) -> None:
    answer = rlsift("snapshot", "--root", root)
    assert (answer.returncode, answer.stdout) == (0, f"{root}/warehouse.snapshot.duckdb\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("query", "wasted_rollouts", "--run", "nope"), "no run is named 'nope' under"),
        (("query", "run_agreement", "--run", "r", "--other", "nope"), "no run is named 'nope' under"),
        (("query", "came_back", "--run", "r", "--run", "twin"), "--run: is given twice; give it once"),
        (
            ("sql", "SELECT 1 AS a, 2 AS a", "--format", "json"),
            "two columns are named 'a'; tell them apart",
        ),
        (("sql", "SELECT 'infinity'::TIMESTAMP AS t"), "write its column as text, as x::VARCHAR"),
        (("sql", "SELECT 'infinity'::TIMESTAMP AS t", "--format", "json"), "write its column as text, as x::VARCHAR"),
    ],
)
def test_what_cannot_be_answered_is_told_in_words(
    capsys: pytest.CaptureFixture[str], root: Path, arguments: Sequence[str], words: str
) -> None:
    code, _, said = in_this_process(capsys, *arguments, "--root", root)
    assert code != 0 and words in " ".join(said.split())


def test_json_holds_numbers_and_no_nan_at_any_depth(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    sql = "SELECT sum(range) AS n, 1.5 AS d, [1.0, 'nan'::DOUBLE] AS l, {'a': 'inf'::DOUBLE} AS s FROM range(3)"
    answer = in_this_process(capsys, "sql", sql, "--format", "json", "--root", root)
    assert answer == (0, '{"n": 3, "d": 1.5, "l": [1.0, null], "s": {"a": null}}\n', "")


def test_csv_holds_lists_and_structs_as_json(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    sql = "SELECT ['x'] AS l, {'a': NULL} AS s"
    code, said, _ = in_this_process(capsys, "sql", sql, "--format", "csv", "--root", root)
    assert code == 0 and list(csv.reader(io.StringIO(said))) == [["l", "s"], ['["x"]', '{"a": null}']]


TEXTS = """
    SELECT [INTERVAL 14 MONTH, INTERVAL '1' DAY, INTERVAL (-90.5) SECOND, INTERVAL 0 DAY] AS l,
           {'i': INTERVAL '-2' MONTH} AS s, INTERVAL '25' HOUR AS i, '\\xFFa'::BLOB AS b,
           1::UNION(n INT, t VARCHAR) AS u
"""


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_intervals_bytes_and_unions_are_written_as_duckdb_does(
    capsys: pytest.CaptureFixture[str], root: Path, form: str
) -> None:
    in_words = "SELECT list_transform(l, lambda x: x::VARCHAR) AS l, {'i': s.i::VARCHAR} AS s, i::VARCHAR AS i, "
    in_words += f"b::VARCHAR AS b, u.n AS u FROM ({TEXTS})"
    answers = [in_this_process(capsys, "sql", sql, "--format", form, "--root", root) for sql in (TEXTS, in_words)]
    assert answers[0][0] == 0 and "1 year 2 months" in answers[0][1]
    assert answers[0] == answers[1]


def test_an_empty_root_has_no_run_and_says_what_begins_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Warehouse(tmp_path).publish()
    told = f"no run has begun under {tmp_path} yet; `rlsift run CONFIG` begins one"
    assert in_this_process(capsys, "status", "--root", tmp_path) == (0, f"{told}.\n", "")
    for args in (("report",), ("report", "demo"), ("query", "came_back"), ("doctor", "demo")):
        assert in_this_process(capsys, *args, "--root", tmp_path) == (2, "", f"error: {told}\n")


def test_no_time_limit_is_too_long(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    assert (
        in_this_process(capsys, "sql", "SELECT 1 AS x", "--timeout", "inf", "--format", "csv", "--root", root)[0] == 0
    )
