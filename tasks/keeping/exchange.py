"""A run's statistics as one file, for somebody else's warehouse: a zip of Parquet tables and what they are of.

No rollouts, features or weights are in it, so that a step which comes from elsewhere counts as `imported` and never as
complete: whoever runs its config does it, and writes the same rows. Only finished steps are imported: one that goes on
may yet write other rows in the place of those that it has.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from pipeline_lib.atomic import new_file
from pipeline_lib.config.section import Name
from warehouse import Warehouse, WarehouseError
from warehouse.tables import OWN_TABLES
from warehouse.versions import SCHEMA_VERSION
from warehouse.warehouse import Query

MANIFEST = "manifest.json"
IMPORTED = "imported"
LEFT_OUT = ("shards", *OWN_TABLES)
"""Shards are of files that stay where they are."""
NEEDED = ("runs", "run_steps", "steps", "prompts")
"""Tables of every schema version, without which there is no run."""
STEPS_OF_RUN = "SELECT fingerprint FROM run_steps WHERE run_id = $run_id"
BY_RUN = "FROM {table} WHERE run_id = $run_id"
BY_STEP = f"FROM {{table}} WHERE fingerprint IN ({STEPS_OF_RUN})"
PROMPTS = f"""
    FROM prompts WHERE prompt_id IN (
        SELECT prompt_id FROM prompt_sources WHERE fingerprint IN ({STEPS_OF_RUN})
        UNION SELECT prompt_id FROM rollout_stats WHERE fingerprint IN ({STEPS_OF_RUN})
    )
"""
COLUMNS = """
    SELECT table_name, list(column_name) AS columns FROM duckdb_columns()
    WHERE NOT internal AND table_name IN (SELECT table_name FROM duckdb_tables()) GROUP BY ALL ORDER BY ALL
"""
SAYS_WHAT_IT_KNEW = 4
"""The first schema version whose selections have the pass rate that was known."""
WHAT_IT_KNEW = """
    WITH named AS (
        SELECT fingerprint AS selection, inputs, unnest(json_keys(inputs)) AS key
        FROM steps WHERE list_contains($selections, fingerprint)
    ),
    history AS (
        SELECT selection, inputs->>key AS fingerprint, regexp_extract(key, '\\d+$')::INTEGER AS age
        FROM named WHERE regexp_full_match(key, 'history_\\d+')
    ),
    known AS (
        SELECT selection AS fingerprint, prompt_id, arg_max(n_correct / n, (age, step)) AS pass_rate
        FROM rollout_stats JOIN history USING (fingerprint) WHERE n > 0 GROUP BY ALL
    )
    SELECT selections.* REPLACE (known.pass_rate AS pass_rate)
    FROM selections JOIN known USING (fingerprint, prompt_id)
"""
"""As migration 0004 has it for those that were there already."""


@dataclass(frozen=True)
class Imported:
    run_id: str
    rows: dict[str, int]
    """By table, how many were brought."""
    unfinished: list[str]
    """Steps that had not ended there, and are left out."""
    here: list[str]
    """Steps that the warehouse has itself, and that stay as they are."""


def export_run(warehouse: Warehouse, run_id: str, file: Path) -> dict[str, int]:
    """Write what the newest snapshot knows of the run to `file`; the number of rows of each table."""
    with warehouse.one_snapshot() as query:
        exported = {name: query(sql, {"run_id": run_id}) for name, sql in _queries(query).items()}
    counts = {name: table.num_rows for name, table in exported.items()}
    manifest = {"run_id": run_id, "schema_version": SCHEMA_VERSION, "rows": counts}
    with new_file(file) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=2))
        for name, table in exported.items():
            with archive.open(f"{name}.parquet", "w") as stream:
                pq.write_table(table, stream, compression="zstd")
    return counts


def import_run(warehouse: Warehouse, file: Path, run_id: str | None = None) -> Imported:
    """Add the rows of `file`, the run under its own id or as `run_id`.

    Of two exports of one run the newer tells its state. Steps that the warehouse has itself stay as they are, with all
    their rows. Raises WarehouseError for a file that is no export or of a newer schema, for a run of that id with
    another config, and where a prompt has another gold here.
    """
    manifest, tables = _read(file)
    name = _run_name(manifest["run_id"] if run_id is None else run_id, file)
    _refuse_other_golds(warehouse, tables["prompts"], file)
    _refuse_another_config(warehouse, name, tables["runs"], file)
    steps = warehouse.query("SELECT fingerprint, status = $1 AS imported FROM steps", [IMPORTED])
    own = steps.filter(pc.invert(steps["imported"]))["fingerprint"].combine_chunks()
    finished = tables["steps"].filter(pc.is_valid(tables["steps"]["outputs"]))["fingerprint"].combine_chunks()
    brought = finished.filter(pc.invert(pc.is_in(finished, own)))
    added = {}
    for table_name, table in tables.items():
        if "run_id" in table.column_names:
            table = _with(table, "run_id", name)
        if "fingerprint" in table.column_names:
            of_steps = pa.concat_arrays([brought, own]) if table_name == "run_steps" else brought
            table = table.filter(pc.is_in(table["fingerprint"], of_steps))
        if table_name == "steps":
            table = _with(table, "status", IMPORTED)
        added[table_name] = table
    added["runs"] = _newer_row(warehouse, name, added["runs"])
    warehouse.write(added)
    if manifest["schema_version"] < SAYS_WHAT_IT_KNEW:
        selections = added["selections"]["fingerprint"].unique().to_pylist()
        warehouse.write({"selections": warehouse.query(WHAT_IT_KNEW, {"selections": selections})})
    warehouse.publish()
    ended = pa.concat_arrays([finished, steps["fingerprint"].combine_chunks()])
    return Imported(
        name,
        {table_name: table.num_rows for table_name, table in added.items()},
        unfinished=_places(tables["run_steps"], pc.invert(pc.is_in(tables["run_steps"]["fingerprint"], ended))),
        here=_places(tables["run_steps"], pc.is_in(tables["run_steps"]["fingerprint"], own)),
    )


def _queries(query: Query) -> dict[str, str]:
    """By table, the rows that tell of one run."""
    queries = {}
    for row in query(COLUMNS).to_pylist():
        table, columns = row["table_name"], row["columns"]
        if table in LEFT_OUT:
            continue
        if table == "prompts":
            queries[table] = PROMPTS
        else:
            assert "run_id" in columns or "fingerprint" in columns, table
            queries[table] = (BY_RUN if "run_id" in columns else BY_STEP).format(table=table)
    return queries


def _read(file: Path) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            tables = {
                name: pq.read_table(pa.BufferReader(archive.read(f"{name}.parquet"))) for name in manifest["rows"]
            }
            newer = manifest["schema_version"] > SCHEMA_VERSION
    except FileNotFoundError:
        raise WarehouseError(f"{file}: no such file") from None
    except (zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise WarehouseError(f"{file}: is no export of a run, or is damaged ({error}); ask for it again") from None
    if newer:
        raise WarehouseError(
            f"{file}: is of schema version {manifest['schema_version']}, this rlsift knows {SCHEMA_VERSION}: "
            "upgrade rlsift"
        )
    problems = [f"table {name} is missing" for name in NEEDED if name not in tables]
    problems += [f"table {name} belongs into no export" for name in LEFT_OUT if name in tables]
    problems += [
        f"table {name} has {table.num_rows} rows of {manifest['rows'][name]}"
        for name, table in tables.items()
        if table.num_rows != manifest["rows"][name]
    ]
    if problems:
        raise WarehouseError(f"{file}: is no whole export of a run ({problems[0]}); ask for it again")
    return manifest, tables


def _run_name(name: Any, file: Path) -> str:
    try:
        return TypeAdapter[str](Name).validate_python(name)
    except ValidationError:
        raise WarehouseError(
            f"{file}: {name!r} cannot name a run: letters, digits, '_', '.' and '-', a letter or digit first, 64 at "
            "most; import it under another name: --as NAME"
        ) from None


def _refuse_other_golds(warehouse: Warehouse, prompts: pa.Table, file: Path) -> None:
    """Runs that are here go by the prompts that are here: another gold would be theirs too."""
    here = warehouse.query("SELECT prompt_id, gold, verifier, verifier_args FROM prompts")
    for theirs in (
        prompts.select(here.column_names).join(here, "prompt_id", join_type="inner", right_suffix=" here").to_pylist()
    ):
        for what in ("gold", "verifier", "verifier_args"):
            if theirs[what] != theirs[f"{what} here"]:
                raise WarehouseError(
                    f"{file}: prompt {theirs['prompt_id']} has the {what} {theirs[what]!r}, and "
                    f"{theirs[f'{what} here']!r} under {warehouse.root}; import it into another root: --root DIR"
                )


def _refuse_another_config(warehouse: Warehouse, run_id: str, runs: pa.Table, file: Path) -> None:
    here = warehouse.query("SELECT config_hash FROM runs WHERE run_id = $1", [run_id])["config_hash"].to_pylist()
    if here and here != runs["config_hash"].to_pylist():
        raise WarehouseError(
            f"{file}: {warehouse.root} has a run {run_id!r} of another config; import it under another name: --as NAME"
        )


def _newer_row(warehouse: Warehouse, run_id: str, runs: pa.Table) -> pa.Table:
    """The row that came, or none where the one that is here is as new. Nobody works here on what came."""
    [row] = runs.to_pylist()
    here = warehouse.query("SELECT updated_at FROM runs WHERE run_id = $1", [run_id])["updated_at"].to_pylist()
    if here and here[0] >= row["updated_at"]:
        return runs.slice(0, 0)
    return _with(runs, "status", "waiting") if row["status"] == "running" else runs


def _places(run_steps: pa.Table, which: pa.ChunkedArray) -> list[str]:
    rows = run_steps.filter(which).sort_by([("stage", "ascending"), ("name", "ascending")]).to_pylist()
    return [f"stage {row['stage']} · {row['name'].replace('_', ' ')}" for row in rows]


def _with(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.set_column(table.column_names.index(column), column, pa.repeat(value, table.num_rows))
