"""Rollouts and scores by real workers of Dask and Ray on this machine are those of the step's own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flow_cases import TINY, environment, processes_marked, rows, wait_until, write_config

from warehouse import Warehouse

CASES = Path(__file__).with_name("runner_cases.py")
ROOM = CASES.parents[2]
SMALL_SHARDS = TINY.replace("prompts_per_shard: 16", "prompts_per_shard: 6")
DASK = "task_runner={type: dask, workers: 2}"
RAY = "task_runner={type: ray}"

pytestmark = pytest.mark.slow


def start(config: Path, *overrides: str, **env: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOM), str(CASES.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, CASES, config, *overrides],
        env=environment(PYTHONPATH=path, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(config: Path, *overrides: str) -> str:
    process = start(config, *overrides)
    out, _ = process.communicate(timeout=1000)
    assert process.returncode == 0, out[-5000:]
    return out


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = write_config(tmp_path_factory.mktemp("local"), SMALL_SHARDS)
    run(config)
    return config.parent / "root"


def assert_same(root: Path, local: Path) -> None:
    for sql in (
        "FROM shards ORDER BY fingerprint, shard_index",
        "FROM rollout_stats ORDER BY fingerprint, prompt_id",
        "FROM evaluations ORDER BY ALL",
    ):
        found, expected = (Warehouse(at).query(sql).to_pylist() for at in (root, local))
        assert expected and found == expected
    for path in (local / "lake" / "rollouts").rglob("*.parquet"):
        assert (root / path.relative_to(local)).read_bytes() == path.read_bytes()
    found, expected = (scores(at) for at in (root, local))
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in expected], abs=1e-5)


def scores(root: Path) -> list[tuple[Any, ...]]:
    sql = "SELECT fingerprint, prompt_id, validation_set, cosine FROM influence_scores ORDER BY ALL"
    return [tuple(row.values()) for row in Warehouse(root).query(sql).to_pylist()]


def judged(out: str) -> list[str]:
    return sorted(line for line in out.splitlines() if line.startswith("JUDGED"))


IN_WORKERS = ["JUDGED 0.0 ok True", "JUDGED 1.0 ok True"]


@pytest.mark.parametrize(("extra", "task_runner"), [("dask", DASK), ("ray", RAY)], ids=["dask", "ray"])
def test_workers_leave_what_the_step_s_own_process_leaves(
    tmp_path: Path, local: Path, extra: str, task_runner: str
) -> None:
    pytest.importorskip(f"prefect_{extra}", reason=f'the extra "{extra}" is not installed')
    config = write_config(tmp_path, SMALL_SHARDS)
    out = run(config, task_runner)
    assert_same(tmp_path / "root", local)
    assert judged(out) == IN_WORKERS


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc")
def test_a_shard_that_a_killed_dask_worker_left_is_done_again(tmp_path: Path, local: Path) -> None:
    pytest.importorskip("prefect_dask", reason='the extra "dask" is not installed')
    config = write_config(tmp_path, SMALL_SHARDS)
    mark = f"RLSIFT_TEST={tmp_path.name}"
    process = start(config, DASK, RLSIFT_TEST=tmp_path.name)
    root = tmp_path / "root"
    wait_until(lambda: bool(list(root.glob("lake/rollouts/*/*.parquet"))), "finished shard")
    victims = [int(pid) for pid in worker_pids(mark)]
    os.kill(victims[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=1000)
    assert process.returncode == 0, out[-5000:]
    assert_same(root, local)
    attempts = rows(root, "SELECT name, attempts FROM steps")
    assert {row["attempts"] for row in attempts} == {1}
    wait_until(lambda: not processes_marked(mark), "end of the workers")


def worker_pids(mark: str) -> list[str]:
    return [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal()
        and mark.encode() in _read(entry / "environ")
        and b"multiprocessing.spawn" in _read(entry / "cmdline")
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone meanwhile, or somebody else's
        return b""
