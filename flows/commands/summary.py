"""The closing table of a run, and what to type next."""

from __future__ import annotations

import json
import shlex
import shutil
import sys

from rich.console import Console

from flows.display import RunSummary, StageSummary, print_summary
from tasks.report import report_path
from warehouse import Warehouse

STAGES = """
    SELECT stage, n_selected, rollouts, prompts_skipped, evaluations
    FROM stage_summary WHERE run_id = $1 AND stage > 0 ORDER BY stage
"""
CONFIG = "SELECT config FROM runs WHERE run_id = $1"


def print_run_summary(console: Console, warehouse: Warehouse, run_id: str) -> None:
    """By stage: prompts selected, rollouts made and skipped, pass rate before and after; then where to look."""
    config = json.loads(warehouse.snapshot_query(CONFIG, [run_id])["config"][0].as_py())
    stages = [
        StageSummary(
            stage=row["stage"],
            prompts_selected=row["n_selected"],
            rollouts=row["rollouts"],
            rollouts_skipped=row["prompts_skipped"] * config["train"]["group_size"],
            pass_rates={e["evaluation_set"]: (e["before"], e["after"]) for e in row["evaluations"]},
        )
        for row in warehouse.snapshot_query(STAGES, [run_id]).to_pylist()
    ]
    root = shlex.quote(str(warehouse.root))
    # Outside an activated environment the name alone would not be found.
    program = "rlsift" if shutil.which("rlsift") else shlex.quote(sys.argv[0])
    question = "SELECT stage, outcome, count(*) FROM prompt_difficulty_history GROUP BY ALL ORDER BY ALL"
    summary = RunSummary(
        run_id=run_id,
        metric=f"avg@{config['evaluation']['samples']}",
        stages=stages,
        report=report_path(warehouse.root, run_id),
        next_commands=[
            f'{program} sql "{question}" --root {root}',
            f"{program} report {run_id} --root {root}",
            f"{program} status {run_id} --root {root}",
        ],
    )
    print_summary(console, summary)
