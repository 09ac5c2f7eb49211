"""What is kept of a real run: looked over, thinned out, made again, and taken elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from chain_cases import ONE_STAGE, run_chain
from damage import flip_a_byte, in_duckdb
from flow_cases import TIMES, rlsift, rows, write_config

from flows.chain import first_pending
from flows.runs import config_of
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config
from tasks.keeping.garbage import find_garbage, remove_garbage
from tasks.keeping.health import find_faults
from warehouse import Warehouse

pytestmark = pytest.mark.slow

OF_RUN = "fingerprint IN (SELECT fingerprint FROM run_steps)"
FOUND_OUT = [
    f"FROM evaluations WHERE {OF_RUN} ORDER BY ALL",
    f"SELECT * EXCLUDE ({TIMES}) FROM train_steps WHERE {OF_RUN} ORDER BY ALL",
    f"FROM rollout_stats WHERE {OF_RUN} ORDER BY ALL",
    f"FROM selections WHERE {OF_RUN} ORDER BY ALL",
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    config = load_config(write_config(tmp_path_factory.mktemp("kept"), ONE_STAGE))
    run_chain(config)
    return config


def test_a_run_that_ended_has_no_faults_and_its_checkpoints_alone_are_of_no_more_use(config: RunConfig) -> None:
    examined = rlsift("doctor", "--root", config.root)
    assert examined.returncode == 0 and "agree" in examined.stdout
    before = {path for path in Path(config.root).rglob("*") if path.is_file()}
    listed = rlsift("gc", "--root", config.root)
    assert listed.returncode == 0 and listed.stdout.count("the stage is trained") == 1
    assert "Nothing was removed; rlsift gc --apply removes it." in listed.stdout
    assert before <= {path for path in Path(config.root).rglob("*") if path.is_file()}
    [stage] = Path(config.root).glob("stages/tiny/1-*")
    next(Path(config.root).glob("lake/rollouts/*/shard-*")).unlink()
    examined = rlsift("doctor", "--root", config.root)
    assert examined.returncode == 1 and "missing" in examined.stdout
    run_chain(config)
    assert list(find_faults(Warehouse(Path(config.root)))) == []
    assert (stage / "checkpoints").exists()


@pytest.mark.parametrize("whole_paths", [False, True], ids=["", "recorded by an older rlsift"])
def test_a_copied_root_is_a_root_of_its_own(config: RunConfig, tmp_path: Path, whole_paths: bool) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(config.root, first, symlinks=True)
    if whole_paths:
        trained = Warehouse(first).query("FROM steps WHERE name = 'train'").to_pylist()
        for row in trained:
            outputs = json.loads(row["outputs"])
            row["outputs"] = json.dumps(outputs | {"path": str(first / outputs["path"])})
        Warehouse(first).write({"steps": pa.Table.from_pylist(trained)})
    shutil.copytree(first, second, symlinks=True)
    shutil.rmtree(first)
    warehouse, run = Warehouse(second), config.model_copy(update={"root": str(second)})
    assert list(find_faults(warehouse)) == [] and first_pending(run) is None
    before = {row["fingerprint"]: row for row in warehouse.query("FROM steps").to_pylist()}
    run_chain(run)
    assert {row["fingerprint"]: row for row in warehouse.query("FROM steps").to_pylist()} == before
    # What is lost is made again from the copy's own weights.
    [lost] = warehouse.query(
        "SELECT path FROM shards JOIN run_steps USING (fingerprint) WHERE name = 'evaluate' AND stage = 1"
    )["path"].to_pylist()
    content = (second / lost).read_bytes()
    (second / lost).unlink()
    run_chain(run)
    assert (second / lost).read_bytes() == content
    assert not first.exists() and config_of(warehouse, "tiny").root == str(second)


def test_every_remedy_that_doctor_names_does_what_it_says(config: RunConfig, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(config.root, root, symlinks=True)
    warehouse, run = Warehouse(root), config.model_copy(update={"root": str(root)})
    expected = [warehouse.query(sql).to_pylist() for sql in FOUND_OUT]
    trained = {row["fingerprint"]: row for row in warehouse.query("FROM steps").to_pylist()}
    [train], [collected], [ingested], [score] = (
        [fingerprint for fingerprint, row in trained.items() if row["name"] == name]
        for name in ("train", "rollouts_train", "ingest", "score")
    )
    stage = root / f"stages/tiny/1-{train}"
    part = root / f"lake/scores/{score}/shard-00001.parquet"
    damages: list[Callable[[], object]] = [
        lambda: (root / "reports/tiny.html").unlink(),
        lambda: flip_a_byte(part),
        lambda: part.unlink(),
        lambda: in_duckdb(warehouse, f"DELETE FROM rollout_stats WHERE fingerprint = '{train}' AND step = 2"),
        lambda: [
            in_duckdb(warehouse, f"DELETE FROM {table} WHERE fingerprint = '{collected}'")
            for table in ("rollout_stats", "kept_totals")
        ],
        lambda: in_duckdb(warehouse, f"DELETE FROM kept_totals WHERE fingerprint = '{collected}'"),
        lambda: in_duckdb(warehouse, f"DELETE FROM kept_decisions WHERE fingerprint = '{train}'"),
        lambda: in_duckdb(warehouse, "DELETE FROM prompts"),
        lambda: in_duckdb(warehouse, f"UPDATE steps SET outputs = '[]' WHERE fingerprint = '{ingested}'"),
        lambda: in_duckdb(warehouse, f"UPDATE steps SET status = 'done' WHERE fingerprint = '{score}'"),
        lambda: flip_a_byte(stage / "records/step-000002/rollouts.parquet"),
        lambda: shutil.rmtree(stage),
    ]
    for damage in damages:
        damage()
        faults = list(find_faults(warehouse))
        assert faults
        for remedy in {fault.remedy for fault in faults}:
            sql, asked, _ = remedy.partition(", in DuckDB on warehouse.duckdb")
            if asked:
                in_duckdb(warehouse, sql)
            if removed := re.search(r"remove (\S+) and (\S+):", remedy):
                for name in removed.groups():
                    shutil.rmtree(root / name, ignore_errors=True)
            if "`rlsift run`" in remedy:
                run_chain(run)
        assert list(find_faults(warehouse)) == [], faults
        assert [warehouse.query(sql).to_pylist() for sql in FOUND_OUT] == expected
    assert {row["fingerprint"] for row in warehouse.query("FROM steps").to_pylist()} == trained.keys()


def test_what_was_removed_is_made_again_where_a_run_comes_to_need_it(config: RunConfig, tmp_path: Path) -> None:
    warehouse = Warehouse(Path(config.root))
    expected = [warehouse.query(sql).to_pylist() for sql in FOUND_OUT]
    policy = "SELECT outputs->>'path' AS path FROM steps JOIN run_steps USING (fingerprint) WHERE steps.name = 'train'"
    weights = warehouse.root / warehouse.query(policy)["path"][0].as_py() / "model.safetensors"
    trained = weights.read_bytes()
    run_chain(config.model_copy(update={"train": config.train.model_copy(update={"learning_rate": 4e-4})}))
    assert all(remove_garbage(warehouse, garbage) for garbage in list(find_garbage(warehouse)))
    assert not weights.exists() and list(find_faults(warehouse)) == []
    run_chain(config)
    assert weights.read_bytes() == trained
    assert [warehouse.query(sql).to_pylist() for sql in FOUND_OUT] == expected


def test_an_imported_run_answers_as_it_did_and_is_no_shortcut(config: RunConfig, tmp_path: Path) -> None:
    packed, root = tmp_path / "tiny.zip", tmp_path / "colleague"
    assert rlsift("export", "tiny", packed, "--root", config.root).returncode == 0
    added = rlsift("import", packed, "--as", "theirs", RLSIFT_ROOT=str(root))
    assert added.returncode == 0 and f"theirs is in {root}" in added.stdout.replace("\n", "")
    watched = rlsift("watch", "theirs", "--once", "--root", root)
    assert watched.returncode == 0 and "↓ ingest" in watched.stdout, watched.stderr
    history = "SELECT * EXCLUDE (run_id) FROM prompt_difficulty_history WHERE run_id = '{}' ORDER BY ALL"
    assert rows(root, history.format("theirs")) == rows(Path(config.root), history.format("tiny"))
    assert rlsift("report", "theirs", "--root", root).returncode == 0
    run_chain(config.model_copy(update={"root": str(root)}))
    assert rows(root, history.format("tiny")) == rows(Path(config.root), history.format("tiny"))
    assert list(find_faults(Warehouse(root))) == []
