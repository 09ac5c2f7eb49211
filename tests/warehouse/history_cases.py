"""Two small histories whose answers can be worked by hand: HISTORY for the views, ASKED for the named queries."""

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from warehouse_rows import (
    decision,
    evaluation,
    fact,
    prompt,
    run,
    score,
    selection,
    similarity,
    source,
    stats,
    step,
    table,
    train_step,
)

from warehouse import Warehouse

OLDEST = Path(__file__).parent / "versions" / "0001a.sql"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Two stages. "other" shares the offline rollouts of "r".
RUN_STEPS = [
    ("r", 0, "rollouts_train", "off"),
    ("r", 0, "evaluate", "ev0"),
    ("r", 0, "similarity", "sim"),
    ("r", 1, "score", "sco1"),
    ("r", 1, "select", "sel1"),
    ("r", 1, "diagnose", "dia1"),
    ("r", 1, "train", "tr1"),
    ("r", 1, "evaluate", "ev1"),
    ("r", 2, "select", "sel2"),
    ("r", 2, "train", "tr2"),
    ("r", 2, "evaluate", "ev2"),
    ("other", 0, "rollouts_train", "off"),
]


def taken(run_steps: list[tuple[str, int, str, str]]) -> pa.Table:
    return table(*(dict(zip(("run_id", "stage", "name", "fingerprint"), row, strict=True)) for row in run_steps))


def train_stats(fingerprint: str, step: int, prompt_id: str, n_correct: int, n: int = 4) -> dict[str, Any]:
    return stats(fingerprint, prompt_id, n_correct, step=step, phase="train", n=n)


HISTORY: Mapping[str, pa.Table] = {
    "run_steps": taken(RUN_STEPS),
    "prompts": table(prompt("a", kind="hard"), prompt("b", kind="easy"), prompt("c"), prompt("d")),
    # a: W W M R, then M in an evaluation; b: R R R; c: M ungraded W M; d: R W M
    "rollout_stats": table(
        stats("off", "a", 0),
        stats("off", "b", 4),
        stats("off", "c", 2),
        stats("off", "d", 4),
        train_stats("tr1", 1, "a", 0),
        train_stats("tr1", 1, "b", 4),
        train_stats("tr1", 1, "c", 0, n=0),
        train_stats("tr1", 1, "d", 0),
        train_stats("tr1", 2, "a", 1),
        train_stats("tr1", 2, "c", 0),
        train_stats("tr1", 2, "d", 1),
        train_stats("tr2", 1, "a", 4),
        train_stats("tr2", 1, "b", 4),
        train_stats("tr2", 1, "c", 1),
        stats("ev2", "a", 2, phase="evaluation"),
    ),
    "selections": table(
        selection("sel1", "a", 1, selected=True, pass_rate=0.0),
        selection("sel1", "c", 2, selected=True, pass_rate=0.5),
        selection("sel1", "b", 3, selected=False, pass_rate=1.0),
        selection("sel1", "d", 4, selected=False, pass_rate=1.0),
        selection("sel2", "d", 1, selected=True, pass_rate=0.25),
        selection("sel2", "a", 2, selected=True, pass_rate=0.25),
        selection("sel2", "b", 3, selected=False, pass_rate=1.0),
        selection("sel2", "c", 4, selected=False, pass_rate=0.0),
    ),
    "diagnoses": table(
        fact("sco1", "gsm", "split_half_spearman", 0.7, 4),
        fact("dia1", "gsm", "share_zero", 0.25, 4),
        fact("dia1", "gsm", "effective_prompts", None, 0),
        fact("another", "gsm", "share_zero", 0.5, 4),
    ),
    "similarities": table(
        *(similarity("sim", i, cosine) for i, cosine in {"a": 0.8, "b": 0.2, "c": 0.4, "d": 0.2}.items())
    ),
    "sampler_decisions": table(
        decision("tr1", 1, "b", keep=False, reason="zero_variance"),
        decision("tr1", 2, "b", keep=False, reason="zero_variance"),
        decision("tr1", 3, "a", keep=True, reason="explored"),
    ),
    "train_steps": table(
        train_step(
            "tr1",
            1,
            prompts_proposed=10,
            prompts_skipped=4,
            prompts_rolled_out=6,
            rollouts=24,
            solved_all=2,
            solved_some=3,
            solved_none=1,
            groups_trained=3,
            generated_tokens=100,
            frac_reward_zero_std=0.5,
        ),
        train_step(
            "tr1",
            2,
            prompts_proposed=6,
            prompts_rolled_out=6,
            rollouts=24,
            solved_some=5,
            solved_none=1,
            groups_trained=5,
            generated_tokens=140,
            frac_reward_zero_std=0.25,
        ),
        train_step("tr2", 1, prompts_proposed=5, prompts_skipped=5),
    ),
    "evaluations": table(
        evaluation("ev0", "avg", 0.2),
        evaluation("ev0", "pass", 0.6),
        evaluation("ev1", "avg", 0.5),
        evaluation("ev1", "pass", 0.7),
        evaluation("ev2", "avg", 0.4),
    ),
    "steps": table(
        step("off", NOON, NOON + timedelta(seconds=10)),
        step("ev0", NOON, NOON + timedelta(seconds=5.5)),
        step("tr1", NOON, NOON + timedelta(seconds=60)),
        step("ev1", NOON),
    ),
}


def sampled(fingerprint: str, engine: str, temperature: float) -> dict[str, Any]:
    settings = {"generation": {"engine": engine, "temperature": temperature, "max_tokens": 30}, "samples": 4}
    return {**step(fingerprint, NOON, NOON), "settings": json.dumps(settings)}


def chosen(fingerprint: str, pass_rates: dict[str, float], n_selected: int) -> list[dict[str, Any]]:
    """`pass_rates` in order of rank."""
    return [
        selection(fingerprint, prompt_id, rank, selected=rank <= n_selected, pass_rate=pass_rate)
        for rank, (prompt_id, pass_rate) in enumerate(pass_rates.items(), 1)
    ]


# Run "r" as above, with prompts e, which only the offline rollouts saw, and f: W W W. Run "twin" has its own rollouts.
ASKED: Mapping[str, pa.Table] = {
    "runs": table(run("r"), run("twin")),
    "run_steps": taken(
        [
            ("r", 0, "ingest", "ing"),
            *RUN_STEPS[:-1],
            ("twin", 0, "rollouts_train", "off2"),
            ("twin", 1, "select", "selt"),
        ]
    ),
    "prompts": table(*(prompt(i, kind="hard" if i in "aef" else "easy") for i in "abcdef")),
    "prompt_sources": table(*(source("ing", i, row) for row, i in enumerate("abcdef"))),
    "steps": table(sampled("off", "transformers", 1.0), sampled("off2", "vllm", 0.7), sampled("tr1", "vllm", 1.0)),
    "rollout_stats": table(
        *(stats("off", i, n_correct) for i, n_correct in zip("abcdef", (0, 4, 2, 4, 1, 0), strict=True)),
        *(stats("off2", i, n_correct) for i, n_correct in zip("abc", (0, 3, 2), strict=True)),
        train_stats("tr1", 1, "a", 0),
        train_stats("tr1", 1, "b", 4),
        train_stats("tr1", 1, "c", 0, n=0),
        train_stats("tr1", 1, "d", 0),
        train_stats("tr1", 1, "f", 0),
        train_stats("tr1", 2, "a", 1),
        train_stats("tr1", 2, "c", 0),
        train_stats("tr1", 2, "d", 1),
        train_stats("tr1", 2, "f", 0),
        train_stats("tr2", 1, "a", 4),
        train_stats("tr2", 1, "b", 4),
        {**train_stats("tr2", 1, "c", 1), "mean_length": 30.0, "max_length": 40, "n_truncated": 2},
        stats("ev2", "a", 2, phase="evaluation"),
    ),
    "selections": table(
        *chosen("sel1", {"a": 0.0, "c": 0.5, "e": 0.25, "b": 1.0, "d": 1.0, "f": 0.0}, n_selected=3),
        *chosen("sel2", {"d": 0.25, "a": 0.25, "b": 1.0, "c": 0.0, "e": 0.25, "f": 0.0}, n_selected=2),
        *chosen("selt", {"a": 0.0, "b": 0.75}, n_selected=2),
    ),
    "influence_scores": table(
        *(score("sco1", i, cosine) for i, cosine in zip("abcdef", (0, 0, 0.5, 0, 0.3, 0), strict=True))
    ),
    "sampler_decisions": table(
        decision("tr1", 1, "b", keep=False, reason="zero_variance"),
        decision("tr1", 2, "b", keep=False, reason="zero_variance"),
        decision("tr1", 3, "a", keep=True, reason="explored"),
        decision("tr1", 4, "f", keep=False, reason="zero_variance"),
        decision("tr2", 1, "e", keep=False, reason="zero_variance"),
        decision("tr2", 2, "e", keep=False, reason="zero_variance"),
        decision("tr2", 3, "new", keep=True, reason="explored"),
    ),
}


def of_version_1(root: Path) -> Warehouse:
    """With a snapshot, as its code left it."""
    warehouse = Warehouse(root)
    snapshot = root / "snapshots" / "warehouse-1.duckdb"
    snapshot.parent.mkdir(parents=True)
    with duckdb.connect(str(warehouse.path)) as connection:
        connection.execute(OLDEST.read_text())
    shutil.copy(warehouse.path, snapshot)
    warehouse.snapshot_path.symlink_to(snapshot.relative_to(root))
    return warehouse


def rows(answer: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.to_pylist()]


def approx(*expected: tuple[Any, ...]) -> list[Any]:
    return [pytest.approx(row) for row in expected]
