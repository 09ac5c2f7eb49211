"""What is to be seen of a run now: the newest snapshot, and the files of the step that goes on.

Nothing here waits for a lock or writes, so a run does not notice that it is watched; but see Warehouse.one_snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flows.commands.status import steps_of
from tasks.live_files import progress_path, read_progress, training_directory
from tasks.locks import interrupted_steps
from tasks.progress import StepProgress
from warehouse import Warehouse
from warehouse.asking import quoted
from warehouse.warehouse import Query

Row = Mapping[str, Any]

# Values stand in the SQL itself, for the reason that flows/commands/status.py gives.
RUN = """
    SELECT run_id, status, stages, (config ->> '$.train.group_size')::INTEGER AS group_size
    FROM runs {where} ORDER BY status = 'running' DESC, updated_at DESC LIMIT 1
"""
TRAINED = "SELECT * FROM train_steps WHERE fingerprint = {fingerprint} ORDER BY step"
SELECTED = """
    SELECT stage, any_value(strategy) AS strategy, count(*) AS n_pool, count_if(selected)::BIGINT AS n_selected
    FROM selections JOIN run_steps USING (fingerprint) WHERE run_id = {run_id} GROUP BY stage
    ORDER BY stage DESC LIMIT 1
"""
EVALUATED = """
    SELECT evaluation_set, k, stage, value, standard_error FROM evaluation_history
    WHERE run_id = {run_id} AND metric = 'avg' ORDER BY evaluation_set, stage
"""


@dataclass(frozen=True)
class SeenStep:
    stage: int
    name: str
    state: str
    """completed, running, failed, interrupted (nobody works on it), imported, removed, or not recorded (lost)."""
    seconds: float | None
    error: str | None
    fingerprint: str


@dataclass(frozen=True)
class Sight:
    run_id: str
    state: str
    """running, waiting (for its next stage), interrupted, completed, failed."""
    stages: int
    steps: Sequence[SeenStep]
    """As the run takes them."""
    progress: StepProgress | None
    """Of the running step, its clock at 0; None where it has told nothing."""
    training_stage: int | None
    training: Sequence[Row]
    """Rows of train_steps of the newest stage that has any."""
    group_size: int | None
    selection: Row | None
    """Of the newest stage: stage, strategy, n_pool, n_selected."""
    evaluations: Sequence[Row]
    """avg@k by set and stage."""

    @property
    def stage(self) -> int:
        return max((step.stage for step in self.steps), default=0)


def look(warehouse: Warehouse, run_id: str | None) -> Sight | None:
    """The run of this name, or the one that was worked on last; None where it has not begun. Raises WarehouseError."""
    if not warehouse.snapshot_path.exists():
        return None
    interrupted = interrupted_steps(warehouse)
    with warehouse.one_snapshot() as query:
        return _look(query, warehouse.root, run_id, interrupted)


def _look(query: Query, root: Path, run_id: str | None, nobody_works_on: Sequence[str]) -> Sight | None:
    where = "" if run_id is None else f"WHERE run_id = {quoted(run_id)}"
    found = query(RUN.format(where=where)).to_pylist()
    if not found:
        return None
    [run] = found
    name = str(run["run_id"])
    steps = [
        SeenStep(row["stage"], row["step"], row["status"], row["seconds"], row["error"], row["fingerprint"])
        for row in steps_of(query, name, nobody_works_on).to_pylist()
    ]
    states = {step.state for step in steps}
    interrupted = run["status"] == "running" and "interrupted" in states and "running" not in states
    running = next((step for step in reversed(steps) if step.state == "running"), None)
    stage, training = _newest_training(query, root, name, steps)
    given = {"run_id": quoted(name)}
    selections = query(SELECTED.format(**given)).to_pylist()
    return Sight(
        run_id=name,
        state="interrupted" if interrupted else run["status"],
        stages=run["stages"],
        steps=steps,
        progress=None if running is None else read_progress(progress_path(root, running.fingerprint)),
        training_stage=stage,
        training=training,
        group_size=run["group_size"],
        selection=selections[0] if selections else None,
        evaluations=query(EVALUATED.format(**given)).to_pylist(),
    )


def _newest_training(
    query: Query, root: Path, run_id: str, steps: Sequence[SeenStep]
) -> tuple[int | None, Sequence[dict[str, Any]]]:
    for step in reversed(steps):
        if step.name == "train" and (rows := _training(query, root, run_id, step)):
            return step.stage, rows
    return None, []


def _training(query: Query, root: Path, run_id: str, step: SeenStep) -> Sequence[dict[str, Any]]:
    """Of a stage that is trained now its own records count: some are not published yet, others were taken back."""
    published = query(TRAINED.format(fingerprint=quoted(step.fingerprint))).to_pylist()
    if step.state != "running":
        return published
    from pipeline_lib.grpo.record_files import finished_steps

    records = training_directory(root, run_id, step.stage, step.fingerprint) / "records"
    known = {row["step"]: row for row in published}
    rows = []
    for number in finished_steps(records):
        with suppress(OSError):  # taken back just now
            rows.append(known.get(number) or _record(records, number))
    return rows


@lru_cache(maxsize=1024)
def _record(records: Path, number: int) -> dict[str, Any]:
    from pipeline_lib.grpo.record_files import read_train_row

    return read_train_row(records, number)
