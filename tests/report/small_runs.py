"""Two runs of four prompts in a real warehouse, small enough to work every number of a report out by hand.

`ours` trains for two stages with a sampler that skips, `theirs` for one without. Prompts a, b, c, d; groups of 4.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from warehouse_rows import evaluation, fact, prompt, run, score, selection, source, stats, step, table, train_step

from pipeline_lib.report import FROM_FILES, PAIR_SCHEMAS, SCHEMAS, PairData, ReportData
from warehouse import Warehouse
from warehouse.lake import write_shard

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = {
    # fingerprint: stage, name, seconds
    "ingest": (0, "ingest", 5),
    "off": (0, "rollouts_train", 100),
    "e0": (0, "evaluate", 40),
    "score1": (1, "score", 60),
    "select1": (1, "select", 2),
    "t1": (1, "train", 300),
    "e1": (1, "evaluate", 40),
    "score2": (2, "score", 60),
    "select2": (2, "select", 2),
    "t2": (2, "train", 200),
    "e2": (2, "evaluate", 40),
}
OTHER_STEPS = {
    # The offline rollouts are the same step, as where two runs begin alike.
    "ingest": (0, "ingest", 5),
    "off": (0, "rollouts_train", 100),
    "e0": (0, "evaluate", 40),
    "o_select1": (1, "select", 2),
    "o_t1": (1, "train", 400),
    "o_e1": (1, "evaluate", 40),
}
CONFIG = {
    "seed": 5,
    "selection": {"type": "influence", "alpha": 0.5},
    "train": {"group_size": 4, "sampler": {"type": "greso"}},
    "influence": {"max_kl": 0.1, "min_ess": 0.5},
    "prompts": {"train": [{"count": 4}]},
}
OTHER_CONFIG = {
    "seed": 5,
    "selection": {"type": "random", "alpha": 0.75},
    "train": {"group_size": 4, "sampler": {"type": "uniform"}},
    "influence": {"max_kl": 0.1, "min_ess": 0.5},
    "prompts": {"train": [{"count": 4}, {"count": 2}]},
}
OFFLINE = {"a": 0, "b": 2, "c": 4, "d": 1}
"""Right ones of 4."""
COSINES = {"a": 0.0, "b": 0.5, "c": 0.0, "d": -0.5}
TRAINED = [
    # fingerprint, step, right ones of 4
    ("t1", 1, {"a": 0, "b": 2}),
    ("t1", 2, {"a": 1, "b": 4, "c": 4}),
    ("t1", 3, {"b": 3}),
    ("t2", 1, {"a": 4, "d": 0}),
    ("o_t1", 1, {"a": 0, "b": 4, "c": 4}),
]
SHARD = "lake/rollouts/off/shard-00000.parquet"
"""Of a, b and c; d's is gone."""
HELD_OUT = {
    "e0": {"x": 0, "y": 1, "z": 2},
    "e1": {"x": 1, "y": 2, "z": 2},
    "e2": {"x": 1, "y": 4, "z": 2},
    "o_e1": {"x": 2, "y": 1, "z": 4},
}


def warehouse_of_two(root: Path) -> Warehouse:
    warehouse = Warehouse(root)
    warehouse.write(_rows())
    write_shard(root / SHARD, _completions(), {})
    warehouse.publish()
    return warehouse


def report_of(warehouse: Warehouse, run_id: str) -> ReportData:
    names = SCHEMAS.keys() - FROM_FILES
    return ReportData.from_tables({name: warehouse.named_query(f"report_{name}", run_id=run_id) for name in names})


def pair_of(warehouse: Warehouse, ours: str = "ours", theirs: str = "theirs") -> PairData:
    tables = {name: warehouse.named_query(f"report_pair_{name}", run_id=ours, other=theirs) for name in PAIR_SCHEMAS}
    return PairData.from_tables(report_of(warehouse, ours), report_of(warehouse, theirs), tables)


def _rows() -> dict[str, pa.Table]:
    return {
        "runs": table(
            run("ours", config=json.dumps({"name": "ours"} | CONFIG), stages=2),
            run("theirs", config=json.dumps({"name": "theirs"} | OTHER_CONFIG)),
            run("begun", config="{}", status="running"),
        ),
        "run_steps": table(
            *(_taken("ours", fingerprint, *place) for fingerprint, place in STEPS.items()),
            *(_taken("theirs", fingerprint, *place) for fingerprint, place in OTHER_STEPS.items()),
        ),
        "steps": table(
            *(
                step(fingerprint, START, START + timedelta(seconds=seconds)) | {"name": name}
                for fingerprint, (_, name, seconds) in (STEPS | OTHER_STEPS).items()
            )
        ),
        "prompts": table(
            *(prompt(i) | {"messages": json.dumps([{"role": "user", "content": f"<{i}>?"}])} for i in "abcdxyz")
        ),
        "prompt_sources": table(
            *(source("ingest", prompt_id, i) for i, prompt_id in enumerate("abcd")),
            *(
                source("ingest", prompt_id, i) | {"split": "evaluation", "set_name": "gsm"}
                for i, prompt_id in enumerate("xyz")
            ),
        ),
        "rollout_stats": table(
            *(stats("off", prompt_id, right) for prompt_id, right in OFFLINE.items()),
            *(
                stats(fingerprint, prompt_id, right, step=step_, phase="train")
                for fingerprint, step_, groups in TRAINED
                for prompt_id, right in groups.items()
            ),
            *(
                stats(fingerprint, prompt_id, right, phase="evaluation")
                for fingerprint, groups in HELD_OUT.items()
                for prompt_id, right in groups.items()
            ),
        ),
        "train_steps": table(
            _trained("t1", 1, proposed=2, none=1, some=1, all_=0),
            _trained("t1", 2, proposed=4, none=0, some=1, all_=2, generation_rounds=2, groups_carried=1),
            _trained("t1", 3, proposed=2, none=0, some=1, all_=0),
            _trained("t2", 1, proposed=5, none=1, some=0, all_=1, generation_rounds=3),
            _trained("o_t1", 1, proposed=3, none=1, some=0, all_=2),
        ),
        "evaluations": table(
            *(
                evaluation(fingerprint, "avg", value) | {"standard_error": 0.125}
                for fingerprint, value in (("e0", 0.25), ("e1", 5 / 12), ("e2", 7 / 12), ("o_e1", 7 / 12))
            )
        ),
        "influence_scores": table(
            *(score(f, i, cosine) for f in ("score1", "score2") for i, cosine in COSINES.items())
        ),
        "diagnoses": table(
            fact("select1", "gsm", "effective_prompts", 2.0, 4),
            fact("select2", "gsm", "effective_prompts", 1.0, 4),
            fact("select2", "alone", "effective_prompts", 1.0, 1),
        ),
        "rollout_drift": table(
            *(_drift("score1", prompt_id, 0.0, 1.0) for prompt_id in "ab"),
            *(_drift("score2", prompt_id, kl, 0.5) for prompt_id, kl in (("a", 0.1), ("b", 0.3))),
        ),
        "selections": table(
            *(selection("select1", i, rank, selected=rank <= 3) for rank, i in enumerate("bacd", start=1)),
            *(selection("select2", i, rank, selected=rank <= 2) for rank, i in enumerate("adbc", start=1)),
            *(selection("o_select1", i, rank, selected=rank <= 2) for rank, i in enumerate("cbda", start=1)),
        ),
        "shards": table(
            *(
                {"fingerprint": "off", "shard_index": i, "path": path, "n_rows": 4, "n_bytes": 1, "sha256": "0"}
                for i, path in enumerate((SHARD, "lake/rollouts/off/gone.parquet"))
            )
        ),
    }


def _taken(run_id: str, fingerprint: str, stage: int, name: str, _: int) -> dict[str, Any]:
    return {"run_id": run_id, "stage": stage, "name": name, "fingerprint": fingerprint}


def _trained(
    fingerprint: str,
    step_: int,
    *,
    proposed: int,
    none: int,
    some: int,
    all_: int,
    generation_rounds: int = 1,
    **more: int,
) -> dict[str, Any]:
    made = none + some + all_
    counts = {"prompts_proposed": proposed, "prompts_skipped": proposed - made, "prompts_rolled_out": made}
    solved = {"solved_none": none, "solved_some": some, "solved_all": all_, "groups_trained": some}
    times = {"step_time": 10.0, "rollout_time": 6.0, "verify_time": 1.0, "update_time": 2.0}
    rounds = {"rollouts": 4 * made, "generation_rounds": generation_rounds, "groups_carried": 0}
    return train_step(fingerprint, step_, **counts, **solved, **times, **(rounds | more))


def _drift(fingerprint: str, prompt_id: str, kl: float, ess: float) -> dict[str, Any]:
    row = {"fingerprint": fingerprint, "prompt_id": prompt_id, "split": "train", "n_tokens": 40, "stale": kl > 0.1}
    return {**row, "kl": kl, "ess": ess, "sequence_ess": ess}


def _completions() -> pa.Table:
    """Of a, b and c: the right ones first."""
    return table(
        *(
            {
                "prompt_id": prompt_id,
                "sample_index": sample,
                "text": f"{prompt_id}{sample} <i>",
                "reward": float(sample < OFFLINE[prompt_id]),
                "correct": sample < OFFLINE[prompt_id],
            }
            for prompt_id in "abc"
            for sample in range(4)
        )
    )
