"""What the steps of a run show of their results, each page from one or two queries on the published snapshot."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from urllib.parse import quote

from prefect.settings import get_current_settings

from pipeline_lib.report.pass_rate_picture import pass_rate_picture
from tasks.artifacts.sender import Shown
from tasks.progress import format_duration
from tasks.report import report_path
from warehouse import Warehouse

Page = Callable[[Warehouse, str, int], Shown]
"""Of a run and one of its stages."""

OUTPUTS = """
    SELECT outputs FROM run_steps JOIN steps USING (fingerprint)
    WHERE run_id = $1 AND stage = $2 AND run_steps.name = $3
"""
OVERLAP = "SELECT n_both FROM selection_overlap WHERE run_id = $1 AND stage_b = $2 AND stage_a = $2 - 1"


def prompts_read(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    outputs = warehouse.snapshot_query(OUTPUTS, [run_id, stage, "ingest"])["outputs"][0].as_py()
    rows = [
        {
            "set": name,
            "rows read": counts["rows"],
            "prompts": counts["prompts"],
            "duplicates merged": counts["duplicates"],
            "left out": sum(counts["rejects"].values()),
            "why": ", ".join(f"{reason} {n}" for reason, n in counts["rejects"].items()),
        }
        for name, counts in json.loads(outputs)["sets"].items()
    ]
    return Shown("What was read, and what was left out and why; row by row in `prompt_rejects`.", rows)


def difficulty(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    rows = [r for r in warehouse.named_query("report_pass_rates", run_id=run_id).to_pylist() if r["stage"] == stage]
    n = sum(row["n_prompts"] for row in rows)
    right, wrong = (sum(r["n_prompts"] for r in rows if r["pass_rate"] == edge) for edge in (1.0, 0.0))
    picture = base64.b64encode(pass_rate_picture(rows).encode()).decode()
    description = (
        f"Of {n:,} prompts **{right:,}** were all right, **{wrong:,}** all wrong and **{n - right - wrong:,}** mixed. "
        "A prompt that is always or never right teaches nothing."
    )
    return Shown(description, f"![Prompts by pass rate](data:image/svg+xml;base64,{picture})")


def selection(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    best = warehouse.named_query("page_selected", run_id=run_id, stage=stage).to_pylist()
    overlap = warehouse.snapshot_query(OVERLAP, [run_id, stage])["n_both"].to_pylist()
    again = f" {overlap[0]:,} of them were taken by stage {stage - 1} as well." if overlap else ""
    rows = [
        {
            "rank": row["rank"],
            "prompt": row["prompt"],
            "kind": row["kind"],
            "pass rate": _percent(row["pass_rate"]),
            "score": _number(row["score"]),
        }
        for row in best
    ]
    n_selected, n_pool, strategy = (best[0][name] for name in ("n_selected", "n_pool", "strategy"))
    description = f"{n_selected:,} of {n_pool:,} prompts were selected by {strategy}.{again} The first {len(rows)}:"
    return Shown(description, rows)


def stages(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    rows = [
        {
            "stage": row["stage"],
            "prompts selected": row["n_selected"],
            "steps": row["train_steps"],
            "rollouts": row["rollouts"],
            "prompts skipped": row["prompts_skipped"],
            "zero variance": _percent(row["frac_reward_zero_std"]),
            "reward first": _number(row["reward_first"]),
            "reward last": _number(row["reward_last"]),
            "time": format_duration(row["seconds"]) if row["seconds"] is not None else None,
        }
        for row in warehouse.named_query("page_stages", run_id=run_id, stage=stage).to_pylist()
    ]
    return Shown("Each stage so far; stage 0 is before any training.", rows)


def training_steps(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    rows = [
        {
            "step": row["step"],
            "reward": _number(row["reward"]),
            "zero variance": _percent(row["frac_reward_zero_std"]),
            "rollouts": row["rollouts"],
            "prompts skipped": row["prompts_skipped"],
            "entropy": _number(row["entropy"]),
            "gradient norm": _number(row["grad_norm"]),
            "mean length": _number(row["completions_mean_length"]),
            "seconds": _number(row["step_time"]),
        }
        for row in warehouse.named_query("page_train_steps", run_id=run_id, stage=stage).to_pylist()
    ]
    return Shown("The last training steps, newest first; all of them in `train_steps`.", rows)


def evaluations(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    rows = [
        {
            "set": row["evaluation_set"],
            "metric": f"{row['metric']}@{row['k']}",
            "prompts": row["n_prompts"],
            "initial policy": _percent(row["initial"]),
            "last stage": _percent(row["previous"]),
            "now": _percent(row["value"]),
            "± standard error": _percent(row["standard_error"]),
            "since last stage": _points(row["change_from_previous_stage"]),
            "since the beginning": _points(row["change_from_stage_0"]),
        }
        for row in warehouse.named_query("page_evaluations", run_id=run_id, stage=stage).to_pylist()
    ]
    if stage == 0:
        keys = ("set", "metric", "prompts", "now", "± standard error")
        return Shown("The initial policy on each evaluation set.", [{key: row[key] for key in keys} for row in rows])
    return Shown(f"The policy of stage {stage} on each evaluation set; changes in points.", rows)


def report_link(warehouse: Warehouse, run_id: str, stage: int) -> Shown:
    path = report_path(warehouse.root, run_id)
    address = warehouse.root / "dashboard" / "address"
    served = address.exists() and get_current_settings().api.url == f"{address.read_text()}/api"
    # Relative, so that it holds behind a tunnel as well.
    text = f"[Open the report](/reports/{quote(path.name)})" if served else f"The report lies at `{path}`."
    return Shown("The whole run on one page.", text)


PAGES: Mapping[str, Mapping[str, Page]] = {
    "ingest": {"prompts": prompts_read},
    "rollouts_train": {"difficulty": difficulty},
    "select": {"selection": selection},
    "train": {"train-steps": training_steps, "stages": stages},
    "evaluate": {"evaluation": evaluations, "stages": stages},
    "report": {"report": report_link},
}
"""What is shown after each kind of step, by the last part of its key."""


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _points(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:+.1f}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
