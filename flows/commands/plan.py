"""rlsift plan: which steps of a run are recorded complete, which would run, and why."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from rich.console import Console

from flows.commands.tables import rich_table
from flows.planning import State, plan_run
from pipeline_lib.config import RunConfig

ENDINGS: dict[State, str] = {
    "complete": "recorded complete",
    "running": "being worked on by another process",
    "goes on": "to be gone on with",
    "runs": "to run",
    "follows": "open: they read what does not exist yet",
}


def print_plan(console: Console, config: RunConfig) -> None:
    """Nothing is written, and no model is loaded."""
    plan = plan_run(config)
    rows = [{"stage": s.stage, "step": s.name, "state": s.state, "why": s.why} for s in plan.steps]
    console.print(rich_table(pa.Table.from_pylist(rows), title=f"Run {config.name}"))
    if plan.dropped:
        console.print(f"No longer part of the run: {', '.join(plan.dropped)}.", highlight=False)
    counts = Counter(step.state for step in plan.steps)
    told = [f"{counts[state]} {ending}" for state, ending in ENDINGS.items() if counts[state]]
    console.print(f"Of {len(plan.steps)} steps {'; '.join(told)}.", highlight=False)
