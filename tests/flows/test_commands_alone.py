"""What commands say and do that need no run before them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from flow_cases import in_this_process, rlsift, rows, write_config


def test_ingest_accounts_for_every_row(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    lines = [
        {"question": "What is 2 + 3?", "answer": "2 + 3 = 5\n#### 5"},
        {"question": "What is 2 + 3?", "answer": "#### 5"},
        {"question": "What is 4 + 4?", "answer": "#### 8"},
        {"question": "Which day is it?", "answer": "no marker"},
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = rlsift("ingest", data, "--format", "gsm8k", "--root", tmp_path / "root")
    assert answer.returncode == 0, answer.stderr
    counts = dict(re.findall(r"^(rows|prompts|duplicates|left out) +(\d+)", answer.stdout, re.MULTILINE))
    assert counts == {"rows": "4", "prompts": "2", "duplicates": "1", "left out": "1"}
    assert rows(tmp_path / "root", "SELECT row_index FROM prompt_rejects") == [{"row_index": 3}]
    again = rlsift("ingest", data, "--format", "gsm8k", "--root", tmp_path / "root")
    assert again.returncode == 0 and "already" in again.stdout


def test_ingest_reads_the_columns_that_map_names(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("ask,tell\nWhat is 2 + 3?,5\nWhat is 4 + 4?,\n")
    root = tmp_path / "root"
    unknown = rlsift("ingest", data, "--root", root)
    assert unknown.returncode == 2 and "columns found: ask, tell" in unknown.stderr and "--map" in unknown.stderr
    assert not root.exists() or not (root / "warehouse.duckdb").exists()
    answer = rlsift("ingest", data, "--map", "prompt=ask,gold=tell", "--root", root)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("file: 0:data.csv is read as mapped (ask, tell)\n")
    assert re.search(r"no_gold +1 +fill the gold answer in", answer.stdout)
    assert rows(root, "SELECT gold, data_source FROM prompts") == [{"gold": "5", "data_source": "data"}]


def test_a_dry_run_says_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    answer = rlsift("run", write_config(tmp_path), "--dry-run", "--set", "train.steps=7")
    assert answer.returncode == 0, answer.stderr
    assert "the config is valid" in answer.stdout and "7 steps of 4 × 4" in answer.stdout
    assert "4 completions of each training prompt, 8 of each validation prompt" in answer.stdout
    assert "selection by exact influence with α = 0.4" in answer.stdout
    few = ("--set", "selection={type: relevance}", "--set", "offline.prompts=9")
    answer = rlsift("run", write_config(tmp_path), "--dry-run", *few)
    assert "4 completions of 9 training prompts drawn at random, at most" in answer.stdout
    assert "selection by relevance with α = 0.3" in answer.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


NAMES = [
    "run",
    "plan",
    "status",
    "watch",
    "ingest",
    "sql",
    "query",
    "schema",
    "report",
    "gc",
    "doctor",
    "export",
    "import",
]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = in_this_process(capsys, name, "--help")
    assert code == 0
    assert f"Example: rlsift {name} " in out
