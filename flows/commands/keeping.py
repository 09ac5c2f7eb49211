"""rlsift gc, doctor, export and import."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tasks.keeping.exchange import export_run, import_run
from tasks.keeping.garbage import find_garbage, remove_garbage
from tasks.keeping.health import find_faults
from tasks.keeping.symptoms import examine_run
from warehouse import Warehouse


def collect_garbage(console: Console, warehouse: Warehouse, *, apply: bool) -> None:
    """List what no run needs; with `apply`, remove it."""
    found = list(find_garbage(warehouse))
    if not found:
        console.print(f"Every file under {warehouse.root} is needed by a run.", soft_wrap=True)
        return
    table = Table("size", "what", "why it is not needed")
    for garbage in found:
        table.add_row(decimal(garbage.n_bytes), str(garbage.path.relative_to(warehouse.root)), garbage.why)
    console.print(table)
    if not apply:
        total = decimal(sum(garbage.n_bytes for garbage in found))
        console.print(f"{total} in all. Nothing was removed; rlsift gc --apply removes it.", soft_wrap=True)
        return
    removed = [garbage for garbage in found if remove_garbage(warehouse, garbage)]
    warehouse.publish()
    console.print(f"{decimal(sum(garbage.n_bytes for garbage in removed))} removed.")
    if kept := len(found) - len(removed):
        console.print(f"{kept} of them stay: a run has come to need them meanwhile.")


def examine(console: Console, warehouse: Warehouse) -> bool:
    """Say where files and records disagree; whether they agree throughout."""
    table = Table("fault", "where", "remedy")
    for fault in find_faults(warehouse):
        table.add_row(fault.what, fault.where, fault.remedy)
    if table.row_count:
        console.print(table)
        return False
    console.print(f"Files and records under {warehouse.root} agree.", soft_wrap=True)
    return True


def examine_one(console: Console, warehouse: Warehouse, run_id: str) -> bool:
    """Say what ails a run, why, and which key of its config to turn; whether nothing does."""
    table = Table("stage", "symptom", "likely cause", "remedy", title=f"Run {run_id}", title_justify="left")
    for symptom in examine_run(warehouse, run_id):
        table.add_row(str(symptom.stage), symptom.what, symptom.cause, symptom.remedy)
    if table.row_count:
        console.print(table)
        return False
    console.print(f"Nothing that is looked at is out of the ordinary in {run_id}.")
    return True


def pack_run(console: Console, warehouse: Warehouse, run_id: str, file: Path) -> None:
    rows = export_run(warehouse, run_id, file)
    told = f"{sum(rows.values()):,} rows of {len(rows)} tables, {decimal(file.stat().st_size)}"
    console.print(f"{run_id} is packed into {file}: {told}. `rlsift import {file}` adds it elsewhere.", soft_wrap=True)


def unpack_run(console: Console, warehouse: Warehouse, file: Path, name: str | None) -> None:
    done = import_run(warehouse, file, name)
    console.print(f"{done.run_id} is in {warehouse.root}: {sum(done.rows.values()):,} rows of {file}.", soft_wrap=True)
    if done.here:
        console.print(f"Done here, and left as they are: {', '.join(done.here)}.", soft_wrap=True)
    if done.unfinished:
        left_out = ", ".join(done.unfinished)
        console.print(f"Not finished when it was packed: {left_out}. A later export brings them.", soft_wrap=True)
