"""What no run needs is found and goes, records first; what is amiss in a root is named; nothing else is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from damage import flip_a_byte, in_duckdb
from kept_root import NOW, add_step, kept_root, names
from warehouse_rows import prompt, source, table

from tasks.keeping.garbage import find_garbage, remove_garbage
from tasks.keeping.health import find_faults
from tasks.locks import lock_path
from warehouse import Warehouse
from warehouse.files import exclusive_lock


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return kept_root(tmp_path / "root")


def test_a_root_in_order_has_no_faults(warehouse: Warehouse) -> None:
    assert list(find_faults(warehouse)) == []


def test_what_no_run_takes_is_garbage_and_what_a_run_takes_is_not(warehouse: Warehouse) -> None:
    checkpoints = "stages/demo/1-train/checkpoints"
    assert names(warehouse, find_garbage(warehouse)) == {checkpoints}
    add_step(warehouse, "old", "rollouts_train", shards=2)
    add_step(warehouse, "oldtrain", "train", policy="oldpolicy")
    (warehouse.root / "lake/scores/unknown").mkdir(parents=True)
    (warehouse.root / "lake/scores/.half.tmp").write_text("half")
    found = {str(g.path.relative_to(warehouse.root)): g for g in find_garbage(warehouse)}
    assert found.keys() == {
        checkpoints,
        "lake/rollouts/old",
        "stages/demo/1-oldtrain",
        "policies/oldpolicy",
        "lake/scores/unknown",
        "lake/scores/.half.tmp",
    }
    shards = (warehouse.root / "lake/rollouts/old").iterdir()
    assert found["lake/rollouts/old"].n_bytes == sum(path.stat().st_size for path in shards)


def test_removed_garbage_leaves_files_and_records_that_agree(warehouse: Warehouse) -> None:
    add_step(warehouse, "old", "rollouts_train", shards=2)
    add_step(warehouse, "oldtrain", "train", policy="oldpolicy")
    kept = set((warehouse.root / "lake/rollouts/pool").iterdir())
    assert all(remove_garbage(warehouse, garbage) for garbage in list(find_garbage(warehouse)))
    assert list(find_garbage(warehouse)) == [] and list(find_faults(warehouse)) == []
    assert not (warehouse.root / "lake/rollouts/old").exists()
    assert set((warehouse.root / "lake/rollouts/pool").iterdir()) == kept
    assert (warehouse.root / "policies/trained").exists()
    status = "SELECT status FROM steps WHERE fingerprint IN ('old', 'oldtrain')"
    assert warehouse.query(status)["status"].to_pylist() == ["removed", "removed"]
    assert warehouse.query("SELECT DISTINCT fingerprint FROM shards")["fingerprint"].to_pylist() == ["pool"]
    # What it found out about the prompts stays.
    assert warehouse.query("SELECT count(*) AS n FROM rollout_stats WHERE fingerprint = 'old'")["n"][0].as_py() == 4


def test_killed_over_a_directory_it_leaves_what_is_seen_to_be_unfinished(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_step(warehouse, "oldtrain", "train", policy="oldpolicy")
    [policy] = [garbage for garbage in find_garbage(warehouse) if garbage.path.name == "oldpolicy"]

    def killed(path: Path) -> None:
        (path / "config.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_garbage(warehouse, policy)
    assert not policy.path.exists()
    [half] = [g for g in find_garbage(warehouse) if g.why == "a writer was killed over it"]
    assert remove_garbage(warehouse, half) and not half.path.exists()


def test_a_step_that_is_worked_on_is_no_garbage_nor_is_any_policy_meanwhile(warehouse: Warehouse) -> None:
    add_step(warehouse, "now", "train", policy="fresh", status="running")
    with exclusive_lock(lock_path(warehouse.root, "now"), timeout_seconds=0):
        assert names(warehouse, find_garbage(warehouse)) == {"stages/demo/1-train/checkpoints"}
    assert {"stages/demo/1-now", "policies/fresh"} <= names(warehouse, find_garbage(warehouse))


def test_what_a_run_has_come_to_need_since_it_was_listed_stays(warehouse: Warehouse) -> None:
    add_step(warehouse, "old", "rollouts_train", shards=1)
    [old] = [garbage for garbage in find_garbage(warehouse) if garbage.fingerprint == "old"]
    row = {"run_id": "demo", "stage": 0, "name": "rollouts_train", "fingerprint": "old"}
    warehouse.write({"run_steps": pa.Table.from_pylist([row])})
    assert not remove_garbage(warehouse, old)
    assert old.path.exists() and not list(find_faults(warehouse))


def test_each_fault_is_named_with_its_place_and_a_remedy(warehouse: Warehouse) -> None:
    root = warehouse.root
    first, second = sorted((root / "lake/rollouts/pool").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    part = root / "lake/scores/score/shard-00000.parquet"
    part.write_bytes(part.read_bytes()[:-4])
    (root / "policies/trained/config.json").write_text('{"other": 1}')
    (root / "lake/features/nobody").mkdir(parents=True)
    (root / "policies/.x.tmp").mkdir()
    (root / "stages/demo/1-train/checkpoints/step-000002").mkdir()
    warehouse.write({"shards": pa.table({})}, fingerprint="validation", instead=True)
    lost = {"run_id": "demo", "stage": 1, "name": "select", "fingerprint": "lost"}
    running = {"fingerprint": "score2", "name": "score", "status": "running", "settings": "{}", "inputs": "{}"}
    stopped = running | {"attempts": 1, "started_at": NOW}
    warehouse.write({"run_steps": pa.Table.from_pylist([lost]), "steps": pa.Table.from_pylist([stopped])})
    warehouse.publish()
    found = {(fault.what, fault.where.split(" ")[0]) for fault in find_faults(warehouse)}
    assert found == {
        ("missing", "lake/rollouts/pool/shard-00000.parquet"),
        ("other bytes than were written", "lake/rollouts/pool/shard-00001.parquet"),
        ("damaged", "lake/scores/score/shard-00000.parquet"),
        ("a policy with other weights than were saved", "policies/trained"),
        ("no record speaks of it", "lake/features/nobody"),
        ("left by a killed writer", "policies/.x.tmp"),
        ("a torn checkpoint", "stages/demo/1-train/checkpoints/step-000002"),
        ("taken by a run, and not recorded", "demo,"),
        ("recorded as running, and no process works on it", "step"),
    }
    assert all(fault.remedy for fault in find_faults(warehouse))


def test_what_a_complete_step_has_left_is_missed_and_what_none_has_written_is_named(warehouse: Warehouse) -> None:
    root = warehouse.root
    add_step(warehouse, "told", "report", outputs={"path": "reports/demo.html"}, used=True)
    flip_a_byte(root / "lake/scores/score/shard-00000.parquet")
    record = root / "stages/demo/1-train/records/step-000001/train_steps.parquet"
    flip_a_byte(record)
    for name in ("lake/stray.parquet", "lake/rollouts/stray.parquet", "lake/rollouts/pool/shard-00002.parquet"):
        shutil.copy(root / "lake/rollouts/pool/shard-00000.parquet", root / name)
    lost = {
        ("missing", "reports/demo.html"),
        ("damaged", "lake/scores/score/shard-00000.parquet"),
        ("a file that no step has written", "lake/stray.parquet"),
        ("a file that no step has written", "lake/rollouts/stray.parquet"),
        ("a file that no step has written", "lake/rollouts/pool/shard-00002.parquet"),
    }
    found = {(fault.what, fault.where.split(" ")[0]) for fault in find_faults(warehouse)}
    assert found == lost | {("damaged", str(record.relative_to(root)))}
    shutil.rmtree(record.parent)
    found = {(fault.what, fault.where.split(" ")[0]) for fault in find_faults(warehouse)}
    assert found == lost | {("missing", str(record.parent.relative_to(root)))}
    shutil.rmtree(root / "stages")
    found = {(fault.what, fault.where.split(" ")[0]) for fault in find_faults(warehouse)}
    assert found == lost | {("missing", "stages/demo/1-train/records")}


def test_what_no_run_takes_is_no_fault_when_it_is_gone(warehouse: Warehouse) -> None:
    add_step(warehouse, "old", "rollouts_train", shards=2)
    add_step(warehouse, "oldtrain", "train", policy="oldpolicy")
    for name in ("lake/rollouts/old", "stages/demo/1-oldtrain", "policies/oldpolicy"):
        shutil.rmtree(warehouse.root / name)
    assert list(find_faults(warehouse)) == []


def test_the_parts_of_scores_of_an_older_rlsift_which_told_of_none_are_no_strays(warehouse: Warehouse) -> None:
    older = warehouse.query("SELECT * REPLACE ('{\"lake\": []}' AS outputs) FROM steps WHERE name = 'score'")
    warehouse.write({"steps": older})
    assert list(find_faults(warehouse)) == []


@pytest.mark.parametrize(
    ("statement", "what", "remedy"),
    [
        ("DELETE FROM rollout_stats WHERE prompt_id = 'p1'", "3 rows of rollout_stats, of 4", "`rlsift run`"),
        ("DELETE FROM kept_totals WHERE prompt_id = 'p1'", "kept_totals tells of 3 rows of rollout_stats, of 4", ""),
        ("DELETE FROM prompts WHERE prompt_id = 'p1'", "1 of its prompts are gone", "`rlsift run`"),
        ("UPDATE steps SET status = 'done' WHERE name = 'score'", "the status 'done'", "`rlsift run`"),
        ("UPDATE steps SET outputs = '[]' WHERE name = 'score'", "complete without a result", "`rlsift run`"),
        ("UPDATE steps SET outputs = NULL WHERE name = 'score'", "complete without a result", "`rlsift run`"),
    ],
)
def test_records_that_another_program_has_changed_are_named(
    warehouse: Warehouse, statement: str, what: str, remedy: str
) -> None:
    warehouse.write({"prompts": table(prompt("p1")), "prompt_sources": table(source("pool", "p1", 0))})
    assert list(find_faults(warehouse)) == []
    in_duckdb(warehouse, statement)
    [fault] = find_faults(warehouse)
    assert what in fault.what and fault.where and remedy in fault.remedy
    sql, asked, _ = fault.remedy.partition(", in DuckDB on warehouse.duckdb")
    if asked:
        in_duckdb(warehouse, sql)
        assert list(find_faults(warehouse)) == []


def test_a_missing_policy_is_a_fault_only_where_a_run_has_it(warehouse: Warehouse) -> None:
    add_step(warehouse, "oldtrain", "train", policy="oldpolicy")
    for name in ("trained", "oldpolicy"):
        (warehouse.root / "policies" / name).rename(warehouse.root / name)
    assert [fault.what for fault in find_faults(warehouse)] == ["the policy of a complete step is missing"]
    # An import brings no weights.
    warehouse.write({"steps": warehouse.query("SELECT * REPLACE ('imported' AS status) FROM steps")})
    assert not [fault for fault in find_faults(warehouse) if "policy" in fault.what]


def test_a_moved_root_keeps_its_policies(warehouse: Warehouse, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    warehouse.root.rename(moved)
    assert names(Warehouse(moved), find_garbage(Warehouse(moved))) == {"stages/demo/1-train/checkpoints"}


@pytest.mark.parametrize("whole_paths", [False, True], ids=["", "recorded by an older rlsift"])
def test_a_copied_root_has_policies_of_its_own(warehouse: Warehouse, tmp_path: Path, whole_paths: bool) -> None:
    if whole_paths:
        older = f"json_object('path', '{warehouse.root}/policies/trained', 'policy_id', outputs->>'policy_id')"
        trained = warehouse.query(f"SELECT * REPLACE ({older} AS outputs) FROM steps WHERE name = 'train'")
        warehouse.write({"steps": trained})
    shutil.copytree(warehouse.root, tmp_path / "copy", symlinks=True)
    copy = Warehouse(tmp_path / "copy")
    (warehouse.root / "policies/trained/config.json").write_text('{"other": 1}')
    assert list(find_faults(copy)) == []
    shutil.rmtree(warehouse.root)
    assert list(find_faults(copy)) == []
    (copy.root / "policies/trained/config.json").write_text('{"other": 1}')
    assert [fault.what for fault in find_faults(copy)] == ["a policy with other weights than were saved"]


def test_two_rows_of_one_key_are_found_in_any_table(warehouse: Warehouse) -> None:
    in_duckdb(warehouse, "INSERT INTO shards FROM shards WHERE fingerprint = 'pool' AND shard_index = 1")
    in_duckdb(warehouse, "INSERT INTO runs SELECT runs.* FROM runs, range(2)")
    found = {(fault.what, fault.where) for fault in find_faults(warehouse)}
    assert found == {
        ("2 rows of one key", "shards (fingerprint, shard_index) = (pool, 1)"),
        ("3 rows of one key", "runs (run_id) = (demo)"),
    }
