"""Where the files of a root and its records disagree, in words, each with what to do."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.grpo.checkpoint_files import torn_checkpoints
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.parquet import is_whole
from tasks.keeping.fault import AGAIN, COLLECT, Fault
from tasks.keeping.garbage import POLICIES, REMOVED, USED
from tasks.keeping.inventory import outputs_of_steps, policies, steps_at_work, unfinished_files
from tasks.keeping.lost_rows import find_lost_rows
from tasks.locks import interrupted_steps
from tasks.policy import policy_directory
from warehouse import Warehouse
from warehouse.lake import verify_shard
from warehouse.tables import KEYS

REDONE = "`rlsift run` does it again"
GOES_ON = "`rlsift run` goes on from there"
STATUSES = ("running", "completed", "failed", "imported", REMOVED)
STEPS = f"SELECT fingerprint, name, status, outputs, fingerprint IN ({USED}) AS used FROM steps ORDER BY fingerprint"
SHARDS = f"SELECT fingerprint, path, sha256, fingerprint IN ({USED}) AS used FROM shards ORDER BY path"
LOST_STEPS = """
    SELECT run_id, stage, name, fingerprint FROM run_steps
    WHERE fingerprint NOT IN (SELECT fingerprint FROM steps) ORDER BY ALL
"""
TWICE = "SELECT {key}, count(*) AS n_rows FROM {table} GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL"


def find_faults(warehouse: Warehouse) -> Iterator[Fault]:
    """Everything but what is being worked on now. Every recorded file that a run takes is read whole."""
    at_work = set(steps_at_work(warehouse))
    steps = [row for row in warehouse.query(STEPS).to_pylist() if row["fingerprint"] not in at_work]
    shards = [row for row in warehouse.query(SHARDS).to_pylist() if row["fingerprint"] not in at_work]
    # One that was removed and that a run takes is only to be done again.
    status = {row["fingerprint"]: row["status"] for row in steps if row["used"] or row["status"] != REMOVED}
    yield from _of_tables(warehouse)
    yield from find_lost_rows(warehouse)
    yield from _of_records(warehouse)
    yield from _of_steps(warehouse.root, steps, {row["path"] for row in shards})
    yield from _of_shards(warehouse.root, shards)
    yield from _of_files(warehouse, status, at_work)
    yield from _of_strays(warehouse.root, steps, {row["path"] for row in shards})
    if not at_work:
        yield from _of_policies(warehouse)
        for path in unfinished_files(warehouse.root):
            yield Fault("left by a killed writer", _name(warehouse, path), COLLECT)


def _of_tables(warehouse: Warehouse) -> Iterator[Fault]:
    """`Warehouse.write` alone keeps one row a key; another program that writes to the file may not.

    Looked for in a snapshot, since a large table takes longer than a run in progress should wait.
    """
    warehouse.publish()
    for table, key in KEYS.items():
        for row in warehouse.snapshot_query(TWICE.format(table=table, key=", ".join(key))).to_pylist():
            n_rows = row.pop("n_rows")
            where = f"{table} ({', '.join(key)}) = ({', '.join(map(str, row.values()))})"
            yield Fault(f"{n_rows} rows of one key", where, "delete all but one: every count of them is too large")


def _of_records(warehouse: Warehouse) -> Iterator[Fault]:
    for fingerprint in interrupted_steps(warehouse):
        yield Fault("recorded as running, and no process works on it", f"step {fingerprint}", GOES_ON)
    for row in warehouse.query(LOST_STEPS).to_pylist():
        step = f"{row['run_id']}, stage {row['stage']}, {row['name']} {row['fingerprint']}"
        yield Fault("taken by a run, and not recorded", step, REDONE)


def _of_steps(root: Path, steps: list[dict[str, Any]], shards: set[str]) -> Iterator[Fault]:
    for row in steps:
        if not row["used"]:  # garbage, which nothing makes again
            continue
        step = f"{row['name']} {row['fingerprint']}"
        if row["status"] not in STATUSES:
            yield Fault(f"has the status {row['status']!r}, which rlsift never writes", step, REDONE)
        if row["status"] != "completed":
            continue
        outputs = _outputs(row)
        if outputs is None:
            yield Fault("recorded complete without a result", step, REDONE)
            continue
        if row["name"] == "report" and not (root / outputs["path"]).exists():
            yield Fault("missing", f"{outputs['path']} of {step}", AGAIN)
        if "directory" in outputs:
            yield from _of_training(root, outputs)
        for path in outputs.get("lake", []):
            if not is_whole(root / path):
                yield Fault(_missing_or(root / path, "damaged"), f"{path} of {step}", AGAIN)
        for path in sorted(set(outputs.get("shards", [])) - shards):
            yield Fault("a result of a complete step, and not recorded as a shard", f"{path} of {step}", AGAIN)


def _of_shards(root: Path, shards: list[dict[str, Any]]) -> Iterator[Fault]:
    for row in shards:
        path = root / row["path"]
        if row["used"] and not verify_shard(path, row["sha256"]):
            yield Fault(_missing_or(path, "other bytes than were written"), row["path"], AGAIN)


def _of_files(warehouse: Warehouse, status: Mapping[str, str], at_work: set[str]) -> Iterator[Fault]:
    for output in outputs_of_steps(warehouse.root):
        if output.fingerprint in at_work:
            continue
        if output.fingerprint not in status:
            yield Fault("no record speaks of it", _name(warehouse, output.path), COLLECT)
        elif output.kind == "stage":
            for torn in torn_checkpoints(output.path / "checkpoints"):
                trained = status[output.fingerprint] == "completed"
                remedy = COLLECT if trained else "`rlsift run` goes on from the one before it"
                yield Fault("a torn checkpoint", _name(warehouse, torn), remedy)


def _of_training(root: Path, outputs: Mapping[str, Any]) -> Iterator[Fault]:
    """What a trained stage has left beside its policy. Its rows are in the warehouse, so that no run needs it."""
    directory = outputs["directory"]
    remedy = (
        f"its rows are in the warehouse, and nothing reads it again; to have it nevertheless, remove {directory} and "
        f"{outputs['path']}: `rlsift run` trains the stage again"
    )
    records = root / directory / "records"
    if not records.exists():
        yield Fault("missing", str(records.relative_to(root)), remedy)
        return
    for step in sorted(set(range(1, outputs["steps"] + 1)) - set(finished_steps(records))):
        yield Fault("missing", f"{directory}/records/step-{step:06d}", remedy)
    for file in sorted(records.glob("*/*.parquet")):
        if not is_whole(file):
            yield Fault("damaged", str(file.relative_to(root)), remedy)


def _of_strays(root: Path, steps: list[dict[str, Any]], shards: Collection[str]) -> Iterator[Fault]:
    """Parquet files that no step has written, and that whoever reads the lake by a pattern takes in."""
    completed = {row["fingerprint"]: _outputs(row) for row in steps if row["status"] == "completed"}
    written = {path for outputs in completed.values() if outputs for path in outputs.get("lake", [])}.union(shards)
    # Older runs do not tell of the parts of their scores.
    silent = {f"lake/scores/{fingerprint}" for fingerprint in completed}
    silent -= {path.rpartition("/")[0] for path in written}
    for file in sorted((root / "lake").rglob("[!.]*.parquet")):
        path = file.relative_to(root)
        is_of_step = len(path.parts) > 3
        if is_of_step and (path.parts[2] not in completed or str(path.parent) in silent):
            continue
        if str(path) not in written:
            yield Fault("a file that no step has written", str(path), "remove it")


def _outputs(row: Mapping[str, Any]) -> dict[str, Any] | None:
    outputs = json.loads(row["outputs"]) if row["outputs"] is not None else None
    return outputs if isinstance(outputs, dict) else None


def _of_policies(warehouse: Warehouse) -> Iterator[Fault]:
    from pipeline_lib.policy import policy_id_of

    rows = warehouse.query(POLICIES).to_pylist()
    for row in rows:
        path = policy_directory(warehouse.root, row)
        if not path.exists():
            if row["status"] == "completed":  # an import brings no weights
                yield Fault("the policy of a complete step is missing", row["path"], AGAIN)
        elif policy_id_of(path) != row["policy_id"]:
            yield Fault("a policy with other weights than were saved", row["path"], "remove it; " + AGAIN)
    for path in policies(warehouse.root):
        if path.name not in {Path(row["path"]).name for row in rows}:
            yield Fault("a policy that no step of a run has as its result", _name(warehouse, path), COLLECT)


def _missing_or(path: Path, otherwise: str) -> str:
    return otherwise if path.exists() else "missing"


def _name(warehouse: Warehouse, path: Path) -> str:
    return str(path.relative_to(warehouse.root))
