"""`rlsift schedule`: what it refuses, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from flow_cases import rlsift, write_config


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --every or --at, one of them"),
        (["--every", "1d", "--at", "22:00"], "give --every or --at, one of them"),
        (["--every", "0d"], "--every 0d: must be a whole number and m, h or d"),
        (["--every", "daily"], "--every daily: must be a whole number and m, h or d"),
        (["--at", "25:00"], "--at 25:00: must be a time of day, as 22:00"),
        (["--at", "22:00", "--timezone", "Mars/Base"], "--timezone Mars/Base: not known"),
        (["--at", "22:00"], "no dashboard serves"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_scheduled_is_refused_in_words(tmp_path: Path, options: list[str], said: str) -> None:
    refused = rlsift("schedule", write_config(tmp_path), "--root", tmp_path / "root", *options, cwd=tmp_path)
    assert refused.returncode == 2 and said in refused.stderr


def test_a_name_that_is_neither_file_nor_run_is_refused(tmp_path: Path) -> None:
    refused = rlsift("schedule", "no_such_run", "--at", "22:00", "--root", tmp_path, cwd=tmp_path)
    assert refused.returncode == 2 and "holds no warehouse" in refused.stderr
