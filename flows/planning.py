"""What a run would do, and why: the chain is walked without performing, each step held against what is recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flows.chain import finish, walk
from pipeline_lib.config import RunConfig
from tasks.locks import worked_on_by
from tasks.step import Done, Step
from warehouse import Warehouse

RECORDED = """
    SELECT fingerprint, status, CASE WHEN json_type(outputs) = 'OBJECT' THEN outputs END AS outputs, error FROM steps
"""
PREVIOUS = """
    SELECT run_steps.stage, run_steps.name, fingerprint, contract, settings, inputs
    FROM run_steps JOIN steps USING (fingerprint) WHERE run_id = $1 ORDER BY run_steps.stage, started_at
"""
MAX_SHOWN = 40
"""Characters of a setting; of a longer one only that it changed is told."""

State = Literal["complete", "running", "goes on", "runs", "follows"]


@dataclass(frozen=True)
class PlannedStep:
    stage: int
    name: str
    state: State
    """follows: what it reads does not exist yet, so that nobody can tell whether its result is recorded."""
    why: str


@dataclass(frozen=True)
class Plan:
    steps: list[PlannedStep]
    dropped: list[str]
    """Steps that the run took before and takes no longer."""


class ToCome(str):
    """Stands for a fingerprint or an id that does not exist before the step that it names has run."""


def plan_run(run: RunConfig) -> Plan:
    """Nothing is written. Raises ValueError where a data set is missing."""
    planner = _Planner(run)
    finish(run, *walk(run, planner, stages=run.stages), planner)
    taken = {(step.stage, step.name) for step in planner.steps}
    return Plan(planner.steps, [_place(*key) for key in planner.previous if key not in taken])


class _Planner:
    def __init__(self, run: RunConfig) -> None:
        self.steps: list[PlannedStep] = []
        self.recorded: dict[str, dict[str, Any]] = {}
        self.previous: dict[tuple[int, str], dict[str, Any]] = {}
        self._origin: dict[str, str] = {}
        warehouse = Warehouse(Path(run.root))
        if warehouse.path.exists():
            self.recorded = {row["fingerprint"]: row for row in warehouse.query(RECORDED).to_pylist()}
            rows = warehouse.query(PREVIOUS, [run.name]).to_pylist()
            self.previous = {(row["stage"], row["name"]): row for row in rows}

    def __call__(self, step: Step) -> Done:
        place = _place(step.stage, step.name)
        causes = list(dict.fromkeys(value for value in step.inputs().values() if isinstance(value, ToCome)))
        if causes:
            self._note(step, "follows", f"follows from {', '.join(causes)}", *self._changes(step, inputs=False))
            return Done(causes[0], defaultdict(lambda: causes[0]), cached=False)
        self._origin[step.fingerprint] = place
        row = self.recorded.get(step.fingerprint)
        outputs = json.loads(row["outputs"]) if row and row["status"] == "completed" and row["outputs"] else None
        lost = step.lost_outputs(outputs) if outputs is not None else []
        if outputs is not None and not lost:
            self._origin |= {value: place for value in outputs.values() if isinstance(value, str)}
            self._note(step, "complete", *self._recorded_elsewhere(step))
            return Done(step.fingerprint, outputs, cached=True)
        process = worked_on_by(step.root, step.fingerprint)
        left_over = step.left_over()
        if process is not None:
            self._note(step, "running", f"process {process} works on it")
        elif left_over:
            self._note(step, "goes on", *self._reasons(step, row, lost), f"goes on from {left_over}")
        else:
            self._note(step, "runs", *self._reasons(step, row, lost))
        return Done(step.fingerprint, defaultdict(lambda: ToCome(place)), cached=False)

    def _note(self, step: Step, state: State, *why: str) -> None:
        self.steps.append(PlannedStep(step.stage, step.name, state, "; ".join(why)))

    def _reasons(self, step: Step, row: Mapping[str, Any] | None, lost: list[str]) -> list[str]:
        if row is not None and lost:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            path = Path(lost[0])
            path = path.relative_to(step.root) if path.is_relative_to(step.root) else path
            return [f"its {path}{more} is gone or torn"]
        if row is not None and row["status"] == "failed":
            return [f"failed: {row['error'].splitlines()[0]}"]
        if row is not None:
            return ["interrupted: its process is gone"]
        return list(self._changes(step)) or ["never run"]

    def _recorded_elsewhere(self, step: Step) -> list[str]:
        previous = self.previous.get((step.stage, step.name))
        if previous is not None and previous["fingerprint"] == step.fingerprint:
            return []
        return [*self._changes(step), "recorded by another run or under an earlier config"]

    def _changes(self, step: Step, *, inputs: bool = True) -> Iterator[str]:
        """What is not as it was when the run last took this step; nothing where it never did."""
        previous = self.previous.get((step.stage, step.name))
        if previous is None:
            return
        found = list(_settings_changes(json.loads(previous["settings"]), _as_json(step.settings())))
        if previous["contract"] not in (None, step.contract):
            found.append(f"its code writes something else now (contract {previous['contract']} -> {step.contract})")
        if inputs:
            found += self._input_changes(json.loads(previous["inputs"]), step.inputs())
            if not found and previous["fingerprint"] != step.fingerprint:
                found.append(f"its code writes something else now (contract {step.contract})")
        yield from found

    def _input_changes(self, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
        for name in [*new, *(name for name in old if name not in new)]:
            if name not in new:
                yield f"no longer reads {name}"
            elif name not in old:
                yield f"reads {name} as well"
            elif old[name] != new[name]:
                origin = self._origin.get(new[name])
                yield f"input {name} changed" + (f" (see {origin})" if origin else "")


def _settings_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = [path for path in {**before, **after} if before.get(path, _Absent) != after.get(path, _Absent)]
    # Another type of something has other settings: that it is another says it all.
    types = [path.removesuffix("type") for path in changed if path.endswith(".type")]
    for path in changed:
        if not any(path.startswith(prefix) and path != f"{prefix}type" for prefix in types):
            shown = [_shown(values.get(path, _Absent)) for values in (before, after)]
            yield f"{path}: {shown[0]} -> {shown[1]}" if max(map(len, shown)) <= MAX_SHOWN else f"{path} changed"


class _Absent:
    """In the place of a setting that is not there; None is a value."""


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def _shown(value: Any) -> str:
    return "(not there)" if value is _Absent else json.dumps(value, ensure_ascii=False)


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As the warehouse gives settings back: tuples are lists there."""
    back: dict[str, Any] = json.loads(json.dumps(settings))
    return back


def _place(stage: int, name: str) -> str:
    return f"stage {stage} · {name.replace('_', ' ')}"
