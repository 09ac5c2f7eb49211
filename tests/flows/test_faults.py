"""What breaks behind our back is found, told of, and made again; nothing else is, and the end is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chain_cases import ONE_STAGE, run_chain
from damage import flip_a_byte
from flow_cases import PATIENCE, TIMES, command, environment, rows, write_config

from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config
from pipeline_lib.grpo.checkpoint_files import MARKER, complete_checkpoints
from tasks.errors import StepFailed
from tasks.progress import LogReporter, use_reporter
from tasks.step import Done, Step, Work, Workshop, perform
from warehouse import Warehouse, WarehouseError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REMEMBERED = {
    "runs": "SELECT run_id, config_hash, status FROM runs",
    "steps": "SELECT fingerprint, name, status, outputs, error FROM steps WHERE name <> 'report'",
    "shards": "FROM shards",
    "scores": "FROM influence_scores",
    "selections": "FROM selections",
    "training": f"SELECT * EXCLUDE ({TIMES}) FROM train_steps",
    "decisions": "FROM sampler_decisions",
    "rollouts": "FROM rollout_stats",
    "evaluations": "FROM evaluations",
}


def remembered(root: Path) -> dict[str, list[dict[str, Any]]]:
    warehouse = Warehouse(root)
    return {name: warehouse.query(f"FROM ({sql}) ORDER BY ALL").to_pylist() for name, sql in REMEMBERED.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs are here, one after the other, so that the paths in their warehouses agree."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    """The root of a run that nothing happened to, moved away."""
    config = load_config(write_config(place, ONE_STAGE))
    run_chain(config)
    kept = place / "undisturbed"
    Path(config.root).rename(kept)
    return kept


@pytest.fixture
def config(place: Path, undisturbed: Path) -> Iterator[RunConfig]:
    """Of a run that is complete: a copy of the undisturbed one."""
    config = load_config(place / "tiny.yaml")
    shutil.copytree(undisturbed, config.root, symlinks=True)
    yield config
    shutil.rmtree(config.root)


def attempts(root: Path) -> dict[str, int]:
    return {row["name"]: row["attempts"] for row in Warehouse(root).query("FROM steps").to_pylist()}


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, Path.unlink])
def test_a_damaged_shard_of_a_completed_step_is_told_of_and_collected_again_alone(
    config: RunConfig, undisturbed: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(config.root)
    [shards] = [list(path.iterdir()) for path in root.glob("lake/rollouts/*") if len(list(path.iterdir())) == 3]
    damaged = sorted(shards)[1]
    kept = {path: path.stat().st_mtime_ns for path in shards if path != damaged}
    damage(damaged)
    before = attempts(root)
    with use_reporter(LogReporter()):
        run_chain(config)
    told = str(damaged.relative_to(root))
    assert f"stage 0/1 · rollouts train was complete, but its {told} is gone or damaged" in caplog.text
    assert f"{told} is gone, or its bytes are not those that were written; it is collected again." in caplog.text
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert attempts(root) == before | {"rollouts_train": 2}
    assert remembered(root) == remembered(undisturbed)


@pytest.mark.parametrize("file", ["model.safetensors", MARKER])
def test_training_goes_on_before_a_torn_checkpoint_and_says_so(
    config: RunConfig, undisturbed: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(config.root)
    [stage] = root.glob("stages/tiny/1-*")
    policy = Warehouse(root).query("SELECT outputs->>'path' AS path FROM steps WHERE name = 'train'")["path"][0].as_py()
    shutil.rmtree(root / policy)
    (stage / "result.json").unlink()
    last = complete_checkpoints(stage / "checkpoints")[-1]
    truncate(last / file)
    before = attempts(root)
    with use_reporter(LogReporter()):
        run_chain(config)
    assert f"checkpoint {last.name} is torn, its files are not those that were saved" in caplog.text
    assert complete_checkpoints(stage / "checkpoints")[-1] == last
    assert attempts(root) == before | {"train": 2}
    assert (root / policy / "model.safetensors").read_bytes() == (
        undisturbed / "policies" / Path(policy).name / "model.safetensors"
    ).read_bytes()
    assert remembered(root) == remembered(undisturbed)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize(
    ("name", "room"),
    [("rollouts_train", 16), ("select", 16), ("train", 96)],
    ids=lambda value: str(value),
)
def test_a_full_disk_is_told_in_words_and_the_run_goes_on_when_there_is_room(
    place: Path, undisturbed: Path, name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard, the database, a checkpoint; `room` is in KiB when the step's work begins."""
    config = load_config(place / "tiny.yaml")
    root = Path(config.root)
    root.mkdir()

    def mount(*options: str) -> int:
        return subprocess.run(["mount", *options, str(root)], capture_output=True).returncode

    def with_little_room(step: Step) -> Done:
        if step.name != name:
            return perform(step)
        work = type(step).work

        def shrink_and_work(step: Step, at: Workshop) -> Work:
            disk = os.statvfs(root)
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize // 1024
            assert mount("-o", f"remount,size={used + room}k") == 0
            return work(step, at)

        with monkeypatch.context() as patched:
            patched.setattr(type(step), "work", shrink_and_work)
            return perform(step)

    if mount("-t", "tmpfs", "-o", "size=1g", "tmpfs") != 0:
        pytest.skip("may not mount a file system here")
    try:
        with pytest.raises((StepFailed, WarehouseError), match=r"(?i)no space left|the disk of .* is full"):
            run_chain(config, with_little_room)
        assert mount("-o", "remount,size=1g") == 0
        run_chain(config)
        assert remembered(root) == remembered(undisturbed)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
        root.rmdir()


def test_with_the_clock_set_back_the_newest_is_still_what_came_last(
    config: RunConfig, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(config.root)
    [stage] = root.glob("stages/tiny/1-*")
    (stage / "result.json").unlink()
    shutil.rmtree(next(path for path in root.glob("policies/*") if path.is_dir()))
    day = 86_400 * 10**9
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - day)
    before = attempts(root)
    run_chain(config)
    assert attempts(root) == before | {"train": 2}
    assert rows(root, "SELECT attempts FROM steps WHERE name = 'train'") == [{"attempts": 2}]
    assert remembered(root) == remembered(undisturbed)


def test_two_starts_of_one_config_share_the_work(place: Path, undisturbed: Path) -> None:
    config = load_config(place / "tiny.yaml")
    both = [
        subprocess.Popen(command("run", place / "tiny.yaml"), env=environment(), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE)[1] for process in both]
    try:
        assert [process.returncode for process in both] == [0, 0], said
        assert "waiting for it to end" in said[0] + said[1]
        assert {name: n for name, n in attempts(Path(config.root)).items() if n != 1} == {}
        assert remembered(Path(config.root)) == remembered(undisturbed)
    finally:
        shutil.rmtree(config.root)
