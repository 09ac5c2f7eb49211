"""`rlsift watch`: what a frame shows of a run, the line where there is no terminal, and when it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_cases import command, environment, in_this_process
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from warehouse_rows import evaluation, run, selection, step, table, train_step

from flows.commands import watch
from flows.watching.frame import frame, line
from flows.watching.sight import look
from flows.watching.sparkline import BARS, sparkline
from tasks.live_files import progress_path, training_directory
from tasks.locks import lock_path
from warehouse import Warehouse
from warehouse.files import exclusive_lock

START = datetime(2026, 1, 1, tzinfo=UTC)
PREPARED = ["policy", "ingest", "rollouts_train", "rollouts_validation", "evaluate0"]
EVALUATED = (("evaluate0", 0.41), ("evaluate1", 0.463))
STAGES = dict.fromkeys(PREPARED, 0) | dict.fromkeys(["score", "select", "train", "evaluate1"], 1)


class Root:
    """A run `demo` of one stage, whose training goes on: three of its steps are published, two more are recorded."""

    def __init__(self, path: Path) -> None:
        self.warehouse = Warehouse(path)
        self.write("running", done=[*PREPARED, "score", "select"])

    def write(self, status: str, *, done: list[str], running: str | None = "train", error: str | None = None) -> None:
        rows = []
        for name in [*done, *filter(None, [running])]:
            row = step(name, START, START + timedelta(seconds=10)) | {"name": name.rstrip("01")}
            rows.append(row | {"error": None} | ({"status": "running", "finished_at": None} if name == running else {}))
        if error is not None:
            rows[-1] |= {"status": "failed", "error": error, "finished_at": START}
        places = [
            {"run_id": "demo", "stage": STAGES[r["fingerprint"]], "name": r["name"], "fingerprint": r["fingerprint"]}
            for r in rows
        ]
        config = json.dumps({"train": {"group_size": 8}})
        self.warehouse.write(
            {
                "runs": table(run("demo", status=status, config=config)),
                "steps": pa.Table.from_pylist(rows),
                "run_steps": table(*places),
                "selections": table(*(selection("select", f"p{i}", i + 1, selected=i < 3) for i in range(12))),
                "evaluations": table(
                    *(evaluation(f, "avg", v) | {"standard_error": 0.02} for f, v in EVALUATED if f in done)
                ),
                "train_steps": table(*(trained(number) for number in (1, 2, 3))),
            }
        )
        self.warehouse.publish()

    def record(self, *numbers: int) -> None:
        """As the training process leaves them."""
        for number in numbers:
            path = training_directory(self.warehouse.root, "demo", 1, "train") / "records" / f"step-{number:06d}"
            path.mkdir(parents=True)
            row = {name: value for name, value in trained(number).items() if name != "fingerprint"}
            pq.write_table(table(row), path / "train_steps.parquet")


def trained(number: int) -> dict[str, Any]:
    values = {"reward": number / 4, "frac_reward_zero_std": 0.25, "kl": 0.001 * number, "generated_tokens": 900}
    values |= {"prompts_proposed": 10, "prompts_skipped": number, "prompts_rolled_out": 10 - number}
    values |= {"groups_trained": 6, "groups_carried": 1, "generation_rounds": 2, "logprob_time": 0.0}
    return train_step("train", number, **values, rollout_time=3.0, update_time=1.0, step_time=4.0)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def worked_on(root: Root) -> Iterator[Root]:
    """The training is somebody's: its lock is held, its progress told."""
    lock = lock_path(root.warehouse.root, "train")
    lock.parent.mkdir()
    told = {"label": "stage 1/1 · train", "total": 40, "unit": "steps", "resumed_at": 0, "done": 5}
    progress_path(root.warehouse.root, "train").write_text(
        json.dumps(told | {"started_at": -10.0, "facts": {"reward": 0.5}})
    )
    root.record(1, 2, 3, 4, 5)
    with exclusive_lock(lock, timeout_seconds=1):
        yield root


def shown(root: Root) -> list[str]:
    sight = look(root.warehouse, None)
    assert sight is not None
    console = Console(width=80, file=io.StringIO())
    console.print(frame(sight))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [row.rstrip() for row in text.splitlines()]


def test_a_frame_of_a_run_that_goes_on(worked_on: Root) -> None:
    heading, *rows = shown(worked_on)
    assert heading.startswith("demo  running · stage 1 of 1 · ")
    assert all(len(row) <= 80 for row in rows)
    assert rows[0].split("stage 0", 1)[1].strip() == "✓ policy  ✓ ingest  ✓ rollouts train  ✓ rollouts validation"
    assert rows[1].strip() == "✓ evaluate  50 s"
    assert rows[2].split("stage 1", 1)[1].strip().startswith("✓ score  ✓ select  ▶ train  ")
    by_name = {row[:13].strip(): row[14:].strip() for row in rows if row[:13].strip()}
    assert by_name["train"].endswith("5/40 steps · 0.5 steps/s · 1 min 10 s left")
    assert by_name["training"] == "stage 1, step 5"  # two steps further than the snapshot
    assert by_name["reward"].split() == ["▁▃▅▇█", "1.250"]
    assert by_name["zero variance"].split() == ["▄▄▄▄▄", "25%"]
    assert by_name["skip rate"].split()[1] == "50%"
    assert by_name["KL"].split()[1] == "0.005"
    assert by_name["tokens/s"].split()[1] == "300"
    assert by_name["batch"] == "6 groups of 8, 1 carried over; 5 prompts in 2 rounds"
    assert by_name["its time"] == "generation 75%, update 25%"
    assert by_name["selected"] == "3 of 12 prompts (25%) by influence, stage 1"
    assert by_name["gsm"] == "avg@4  41.0 ± 2.0 % (stage 0)"


def test_a_frame_of_a_run_whose_process_is_gone(root: Root) -> None:
    heading, *rows = shown(root)
    assert heading.startswith("demo  interrupted")
    assert any("■ train interrupted" in row for row in rows)
    assert any("`rlsift run` goes on from there" in row for row in rows)


def test_a_frame_of_a_run_whose_step_is_lost(root: Root) -> None:
    lost = {"run_id": "demo", "stage": 1, "name": "diagnose", "fingerprint": "lost"}
    root.warehouse.write({"run_steps": table(lost)})
    root.warehouse.publish()
    assert any("? diagnose not recorded" in row for row in shown(root))


def test_a_frame_of_a_run_that_has_failed(root: Root) -> None:
    root.write("failed", done=["policy"], running="ingest", error="StepFailed: [bold]no[/] prompt is left")
    heading, *rows = shown(root)
    assert heading.startswith("demo  failed")
    assert any("✗ ingest failed" in row for row in rows)
    assert any("error" in row and "stage 0 · ingest: StepFailed: [bold]no[/] prompt is left" in row for row in rows)


def test_a_frame_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.write({"runs": table(run("demo", status="running", config="{}"))})
    warehouse.publish()
    sight = look(warehouse, "demo")
    assert sight is not None and line(sight) == "demo is running, stage 0 of 1"
    Console(file=io.StringIO()).print(frame(sight))


def test_without_a_name_the_run_that_goes_on_is_taken_before_newer_ones(root: Root) -> None:
    newer = run("newer") | {"updated_at": datetime(2026, 2, 1, tzinfo=UTC)}
    root.warehouse.write({"runs": table(newer)})
    root.warehouse.publish()
    names = {run_id: look(root.warehouse, run_id) for run_id in (None, "newer", "unknown")}
    assert {key: sight and sight.run_id for key, sight in names.items()} == {
        None: "demo",
        "newer": "newer",
        "unknown": None,
    }


def test_steps_that_were_taken_back_after_a_resume_are_not_shown(worked_on: Root) -> None:
    records = training_directory(worked_on.warehouse.root, "demo", 1, "train") / "records"
    for number in (3, 4, 5):
        (records / f"step-{number:06d}" / "train_steps.parquet").unlink()
        (records / f"step-{number:06d}").rmdir()
    assert any(row.split() == ["training", "stage", "1,", "step", "2"] for row in shown(worked_on))


# --- the command -----------------------------------------------------------------------------------------------


def test_once_prints_one_frame_and_leaves(capsys: pytest.CaptureFixture[str], worked_on: Root) -> None:
    code, out, _ = in_this_process(capsys, "watch", "demo", "--once", "--root", worked_on.warehouse.root)
    assert code == 0 and out.startswith("demo  running") and "▁▃▅▇█" in out


def test_once_says_that_a_run_has_not_begun(capsys: pytest.CaptureFixture[str], root: Root, tmp_path: Path) -> None:
    code, _, error = in_this_process(capsys, "watch", "other", "--once", "--root", root.warehouse.root)
    assert code == 2 and "the run other has not begun under" in error
    code, _, error = in_this_process(capsys, "watch", "--once", "--root", tmp_path / "nowhere")
    assert code == 2 and "no run has begun under" in error
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_it_waits_for_a_run_and_ends_with_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str, code: int
) -> None:
    """What happens in its pauses: nothing; the run begins; nothing; it ends."""
    made: list[Root] = []
    error = "RuntimeError: gone" if status == "failed" else None
    happens = iter(
        [
            lambda: None,
            lambda: made.append(Root(tmp_path)),
            lambda: None,
            lambda: made[0].write(status, done=["policy"], running="ingest" if error else None, error=error),
        ]
    )
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: next(happens)())
    ended, out, _ = in_this_process(capsys, "watch", "demo", "--root", tmp_path)
    said = [row.split(" ", 1)[1] for row in out.splitlines()]
    assert ended == code
    assert said[0].startswith("the run demo has not begun under") and said[0].endswith("; waiting.")
    assert said[1].startswith("demo is interrupted, stage 1 of 1")
    assert said[2].startswith(f"demo is {status}, stage 1 of 1")
    assert len(said) == 3  # nothing is said twice
    assert ("stage 0 · ingest failed: RuntimeError: gone" in said[2]) == (status == "failed")


def test_ctrl_c_on_a_terminal_ends_it_quietly_and_leaves_the_last_frame(worked_on: Root) -> None:
    master, slave = pty.openpty()
    args = command("watch", "demo", "--root", worked_on.warehouse.root)
    child = subprocess.Popen(args, stdin=slave, stdout=slave, stderr=slave, env=environment(TERM="xterm"))
    os.close(slave)
    screen = b""
    deadline = time.monotonic() + 200
    while b"its time" not in screen and time.monotonic() < deadline:
        if select.select([master], [], [], 0.2)[0]:
            screen += os.read(master, 65536)
    child.send_signal(signal.SIGINT)
    while select.select([master], [], [], 0.5)[0]:
        try:
            screen += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    assert child.wait(timeout=60) == 130
    os.close(master)
    assert b"Traceback" not in screen and b"Stopped" not in screen
    assert "▶".encode() in screen and screen.rindex(b"\x1b[?25h") > screen.rindex(b"\x1b[?25l")


def test_it_imports_neither_prefect_nor_torch(worked_on: Root) -> None:
    code = (
        "import sys\nfrom flows.cli import app\n"
        "try: app(['watch', '--once', '--root', sys.argv[1]])\n"
        "except SystemExit: print(sorted({'prefect', 'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    args = [command()[0], "-c", code, str(worked_on.warehouse.root)]
    answer = subprocess.run(args, env=environment(), capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


# --- sparklines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 5, ""),
        ([None, None], 5, "  "),
        ([3.0], 5, "▄"),
        ([0.0, 7.0], 5, "▁█"),
        ([0.0, None, 7.0], 5, "▁ █"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, BARS),
        ([0, 2, 6, 8], 2, "▁█"),  # means of two
        ([1, None, 5, 9], 2, "▁█"),
    ],
)
def test_sparklines_by_hand(values: list[float | None], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars


@given(st.lists(st.none() | st.floats(-1e9, 1e9), max_size=200), st.integers(1, 60))
def test_any_row_of_numbers_has_its_place(values: list[float | None], width: int) -> None:
    bars = sparkline(values, width)
    assert len(bars) == min(width, len(values))
    assert set(bars) <= {*BARS, " "}
    if len(values) <= width:
        assert [bar == " " for bar in bars] == [value is None for value in values]
