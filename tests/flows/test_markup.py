"""What a user named is printed as it is, also where Rich would take it for markup or an emoji."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flow_cases import in_this_process
from warehouse_rows import evaluation, fact, run, step, table

from flows import cli
from warehouse import Warehouse

NASTY = "[red]a[/b]:cat:"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run of that name, and an evaluation set, and a step whose error speaks of it."""
    warehouse = Warehouse(tmp_path_factory.mktemp("root") / NASTY)
    warehouse.write(
        {
            "runs": table(run(NASTY), run("other")),
            "run_steps": table({"run_id": NASTY, "stage": 1, "name": "evaluate", "fingerprint": NASTY}),
            "steps": table({**step(NASTY, NOON, NOON), "status": "failed", "error": f"no {NASTY}"}),
            "evaluations": table({**evaluation(NASTY, "avg", 0.5), "evaluation_set": NASTY}),
            "diagnoses": table(fact(NASTY, NASTY, "share_zero", 0.99, 4)),
        }
    )
    warehouse.publish()
    (warehouse.root / "policies" / "[red]:cat:").mkdir(parents=True)
    return warehouse.root


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (cli.console, cli.messages):
        monkeypatch.setattr(console, "_width", 200)  # its setter would stay


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("status",), NASTY),
        (("status", NASTY), f"Run {NASTY}"),
        (("status", NASTY), f"no {NASTY}"),
        (("status", f"no {NASTY}"), f"no run is named 'no {NASTY}'"),
        (("watch", NASTY, "--once"), NASTY),
        (("doctor", NASTY), f"Run {NASTY}"),
        (("doctor",), "policies/[red]:cat:"),
        (("gc",), "policies/[red]:cat:"),
        (("sql", f'SELECT 1 AS "{NASTY}"'), NASTY),
        (("sql", f"SELECT ['{NASTY}'] AS x"), NASTY),
        (("sql", f"SELECT '{NASTY}'::INTEGER"), NASTY),
        (("query", NASTY), NASTY),
        (("query", "prompt_history", f"--{NASTY}", "1"), NASTY),
        (("schema", NASTY), NASTY),
        (("snapshot",), NASTY),
    ],
)
def test_names_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str], root: Path, args: Sequence[str], told: str
) -> None:
    _, out, error = in_this_process(capsys, *args, "--root", root)
    assert told in out + error


def test_files_are_named_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data, root = tmp_path / "[red]:cat:.jsonl", tmp_path / NASTY
    rows = [{"question": NASTY, "answer": "no marker"}, {"question": "x", "answer": "#### 1"}]
    data.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = in_this_process(capsys, "ingest", data, "--format", "gsm8k", "--root", root)
    assert code == 0 and data.name in out and str(root) in out.replace("\n", "")
    Warehouse(root).write({"runs": table(run("demo"))})
    Warehouse(root).publish()
    packed = tmp_path / "[red]:cat:.zip"
    for args in (("export", "demo", packed), ("import", packed)):
        code, out, _ = in_this_process(capsys, *args, "--root", root)
        assert code == 0 and str(packed) in out
