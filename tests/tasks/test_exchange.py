"""A run's statistics go from one warehouse to another: all of them, once, and never in the place of better ones."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kept_root import add_step, kept_root
from warehouse_rows import decision, evaluation, prompt, run, selection, similarity, stats, table, train_step

from tasks.keeping.exchange import MANIFEST, export_run, import_run
from tasks.keeping.health import find_faults
from warehouse import Warehouse, WarehouseError
from warehouse import warehouse as warehouse_module


@pytest.fixture
def theirs(tmp_path: Path) -> Warehouse:
    """Of a run with a row in every table that tells of a run, beside a run that nobody asks for."""
    warehouse = kept_root(tmp_path / "theirs")
    source = {"fingerprint": "pool", "split": "train", "set_name": "pool", "source": "s", "row_index": 0}
    warehouse.write(
        {
            "prompts": table(*(prompt(f"p{i}") for i in range(4)), prompt("nobody's")),
            "prompt_sources": table(source | {"prompt_id": "p0"}),
            "prompt_rejects": table(source | {"reason": "no_gold", "detail": "row 7"}),
            "policies": table({"policy_id": "t", "path": "/x", "fingerprint": "train", "n_parameters": 2}),
            "selections": table(selection("score", "p1", 1, selected=True)),
            "similarities": table(similarity("score", "p1", 0.5)),
            "sampler_decisions": table(decision("train", 1, "p1", keep=True, reason="explored")),
            "train_steps": table(train_step("train", 1)),
            "evaluations": table(evaluation("train", "avg", 0.5)),
        }
    )
    add_step(warehouse, "unasked", "rollouts_train", shards=1)
    taken = {"run_id": "other", "stage": 0, "name": "rollouts_train", "fingerprint": "unasked"}
    warehouse.write({"runs": table(run("other", config_hash="o")), "run_steps": table(taken)})
    warehouse.publish()
    return warehouse


@pytest.fixture
def packed(theirs: Warehouse, tmp_path: Path) -> Path:
    export_run(theirs, "demo", tmp_path / "demo.zip")
    return tmp_path / "demo.zip"


def content(warehouse: Warehouse) -> dict[str, list[dict[str, Any]]]:
    names = warehouse.query("SELECT table_name FROM duckdb_tables() ORDER BY 1")["table_name"].to_pylist()
    return {name: warehouse.query(f"FROM {name} ORDER BY ALL").to_pylist() for name in names}


def test_what_arrives_is_the_run_and_all_that_it_found_out(theirs: Warehouse, packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    done = import_run(ours, packed)
    assert done.run_id == "demo" and done.rows["rollout_stats"] == 4 and done.here == done.unfinished == []
    of_run = {"pool", "score", "train"}
    for table_name, rows in content(theirs).items():
        expected = [
            row | ({"status": "imported"} if table_name == "steps" else {})
            for row in rows
            if row.get("fingerprint", "pool") in of_run
            and row.get("run_id", "demo") == "demo"
            and row.get("prompt_id") != "nobody's"
        ]
        assert content(ours)[table_name] == ([] if table_name == "shards" else expected), table_name
    views = ours.snapshot_query("SELECT prompt_id, n_correct FROM prompt_difficulty_history WHERE run_id = 'demo'")
    assert views.num_rows == 4


def test_a_second_time_changes_nothing(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    import_run(ours, packed)
    before = content(ours)
    import_run(ours, packed)
    assert content(ours) == before


def test_its_owner_loses_nothing_by_importing_it(theirs: Warehouse, packed: Path) -> None:
    before = content(theirs)
    import_run(theirs, packed)
    assert content(theirs) == before


def test_a_step_that_was_done_here_stays_complete_with_its_own_rows(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    add_step(ours, "pool", "rollouts_train", shards=1)
    ours.write({"rollout_stats": table(stats("pool", "p0", 3))})
    assert import_run(ours, packed).here == ["stage 0 · rollouts train"]
    status = {row["fingerprint"]: row["status"] for row in content(ours)["steps"]}
    assert status == {"pool": "completed", "score": "imported", "train": "imported"}
    [p0] = [row for row in content(ours)["rollout_stats"] if row["prompt_id"] == "p0"]
    assert p0["n_correct"] == 3


def test_of_a_run_that_goes_on_what_is_finished_is_taken_and_a_later_export_brings_the_rest(
    theirs: Warehouse, packed: Path, tmp_path: Path
) -> None:
    steps = theirs.query("FROM steps WHERE fingerprint = 'train'")
    going_on = {"fingerprint": "train", "status": "running", "outputs": None, "finished_at": None}
    theirs.write({"steps": table(going_on), "runs": table(run("demo", status="running"))})
    theirs.publish()
    export_run(theirs, "demo", tmp_path / "earlier.zip")
    ended = run("demo", updated_at=datetime(2026, 1, 2, tzinfo=UTC))
    theirs.write({"steps": steps, "runs": table(ended)})
    theirs.publish()
    export_run(theirs, "demo", tmp_path / "later.zip")
    ours = Warehouse(tmp_path / "ours")
    assert import_run(ours, tmp_path / "earlier.zip").unfinished == ["stage 1 · train"]
    early = content(ours)
    assert [row["status"] for row in early["runs"]] == ["waiting"]
    assert {row["fingerprint"] for name in ("steps", "run_steps", "train_steps") for row in early[name]} == {
        "pool",
        "score",
    }
    assert list(find_faults(ours)) == []
    done = import_run(ours, tmp_path / "later.zip")
    late = content(ours)
    assert done.unfinished == [] and late["runs"] == [ended]
    assert all(row["outputs"] and row["finished_at"] for row in late["steps"]) and len(late["steps"]) == 3
    assert import_run(ours, tmp_path / "earlier.zip").unfinished == []
    assert content(ours) == late and list(find_faults(ours)) == []


def test_another_run_of_that_name_is_refused_and_another_name_is_taken(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    ours.write({"runs": table(run("demo", config_hash="another"))})
    with pytest.raises(WarehouseError, match=r"has a run 'demo' of another config; .* --as NAME"):
        import_run(ours, packed)
    assert content(ours)["steps"] == []
    assert import_run(ours, packed, "ada").run_id == "ada"
    assert {row["run_id"] for row in content(ours)["run_steps"]} == {"ada"}


def test_selections_of_an_older_export_get_what_their_history_knew(tmp_path: Path) -> None:
    """Offline 1 of 4; the first stage 3 of 4; what the selection's own stage trained on was not known to it."""
    theirs = kept_root(tmp_path / "theirs")
    history = {"history_0": "pool", "history_1": "train", "ranks": "r"}
    theirs.write(
        {
            "rollout_stats": table(
                stats("pool", "p0", 1),
                stats("pool", "p1", 2),
                stats("train", "p0", 3, step=2, phase="train"),
                stats("later", "p0", 4, step=1, phase="train"),
            ),
            "selections": table(*(selection("chosen", p, 1, selected=True, pass_rate=0.9) for p in ("p0", "p1", "p9"))),
            "run_steps": table({"run_id": "demo", "stage": 2, "name": "select", "fingerprint": "chosen"}),
        }
    )
    add_step(theirs, "chosen", "select", inputs=history)
    theirs.publish()
    export_run(theirs, "demo", tmp_path / "new.zip")
    with zipfile.ZipFile(tmp_path / "new.zip") as new, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        manifest = json.loads(new.read(MANIFEST)) | {"schema_version": 3}
        del manifest["rows"]["prompt_states"]
        old.writestr(MANIFEST, json.dumps(manifest))
        for name in manifest["rows"]:
            rows = pq.read_table(pa.BufferReader(new.read(f"{name}.parquet")))
            with old.open(f"{name}.parquet", "w") as stream:
                pq.write_table(rows.drop_columns("pass_rate") if name == "selections" else rows, stream)
    ours = Warehouse(tmp_path / "ours")
    import_run(ours, tmp_path / "old.zip")
    known = {row["prompt_id"]: row["pass_rate"] for row in content(ours)["selections"]}
    assert known == {"p0": 0.75, "p1": 0.5, "p9": None}


def test_what_is_no_export_or_of_a_newer_schema_is_refused_in_words(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    with pytest.raises(WarehouseError, match="no such file"):
        import_run(ours, tmp_path / "none.zip")
    torn = tmp_path / "torn.zip"
    torn.write_bytes(packed.read_bytes()[:-100])
    with pytest.raises(WarehouseError, match="is no export of a run, or is damaged"):
        import_run(ours, torn)
    newer = tmp_path / "newer.zip"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr(MANIFEST, json.dumps({"run_id": "demo", "schema_version": 99, "rows": {}}))
    with pytest.raises(WarehouseError, match=r"schema version 99.* upgrade rlsift"):
        import_run(ours, newer)
    assert content(ours)["runs"] == []


def edited(packed: Path, to: Path, tables: dict[str, pa.Table], **manifest: Any) -> Path:
    """The export with other tables, and other entries of its manifest."""
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(to, "w") as new:
        told = json.loads(old.read(MANIFEST)) | manifest
        new.writestr(MANIFEST, json.dumps(told))
        for name in told["rows"]:
            buffer = pa.BufferOutputStream()
            pq.write_table(tables.get(name, pq.read_table(pa.BufferReader(old.read(f"{name}.parquet")))), buffer)
            new.writestr(f"{name}.parquet", buffer.getvalue().to_pybytes())
    return to


def packed_table(packed: Path, name: str) -> pa.Table:
    with zipfile.ZipFile(packed) as archive:
        return pq.read_table(pa.BufferReader(archive.read(f"{name}.parquet")))


def test_an_export_that_lacks_rows_or_tables_is_refused(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    fewer = edited(packed, tmp_path / "fewer.zip", {"rollout_stats": packed_table(packed, "rollout_stats").slice(1)})
    with pytest.raises(WarehouseError, match=r"no whole export of a run \(table rollout_stats has 3 rows of 4\)"):
        import_run(ours, fewer)
    with pytest.raises(WarehouseError, match=r"table runs is missing"):
        import_run(ours, edited(packed, tmp_path / "none.zip", {}, rows={"steps": 3}))
    for version in ("4", None):
        with pytest.raises(WarehouseError, match="or is damaged"):
            import_run(ours, edited(packed, tmp_path / "version.zip", {}, schema_version=version))


def test_another_gold_of_a_prompt_that_is_here_is_refused(packed: Path, tmp_path: Path) -> None:
    ours = Warehouse(tmp_path / "ours")
    import_run(ours, packed)
    prompts = packed_table(packed, "prompts")
    golds = prompts.column_names.index("gold")
    wrong = prompts.set_column(golds, "gold", pa.array(["wrong"] * len(prompts)))
    before = content(ours)
    with pytest.raises(WarehouseError, match=r"prompt p\d has the gold 'wrong', and .*; import it into another"):
        import_run(ours, edited(packed, tmp_path / "wrong.zip", {"prompts": wrong}), "colleague")
    assert content(ours) == before


@pytest.mark.parametrize("name", ["", "../../evil", "a b", "x~y", "[red]"])
def test_a_name_that_no_run_can_have_is_refused(packed: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(WarehouseError, match=r"cannot name a run.*--as NAME"):
        import_run(Warehouse(tmp_path / "ours"), packed, name)


def test_an_export_is_of_one_snapshot(theirs: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on publishes between two of its queries."""
    fetch = warehouse_module._fetch

    def meanwhile(*args: Any) -> pa.Table:
        theirs.write({"train_steps": table(train_step("train", next(steps))), "rollout_stats": table(next(rows))})
        theirs.publish()
        return fetch(*args)

    steps = iter(range(2, 1000))
    rows = iter(stats("train", "p1", 2, step=step, phase="train") for step in range(2, 1000))
    before = theirs.snapshot_query("SELECT count(*) AS n FROM train_steps WHERE fingerprint = 'train'")["n"][0].as_py()
    monkeypatch.setattr(warehouse_module, "_fetch", meanwhile)
    counts = export_run(theirs, "demo", tmp_path / "going on.zip")
    assert counts["train_steps"] - before == counts["rollout_stats"] - 4
