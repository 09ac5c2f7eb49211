"""What the score step can be told: several processes, a cascade, stale rollouts, features and derivatives to keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from flow_cases import write_config

from flows.chain import walk
from flows.runs import record_run
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config
from tasks.progress import LogReporter, use_reporter
from tasks.step import Done, Step, perform
from warehouse import Warehouse

FEATURES = Path(__file__).parents[2] / "warehouse" / "queries" / "score_features.sql"
PER_TOKEN = Path(__file__).parents[2] / "warehouse" / "queries" / "score_per_token.sql"


class Reached(Exception):
    pass


def run_to(config: RunConfig, name: str, stage: int = 1) -> dict[str, Done]:
    """The chain up to and including the named step of a stage; the steps of that stage."""
    record_run(config, "running")
    found: dict[str, Done] = {}

    def do(step: Step) -> Done:
        done = perform(step)
        if step.stage == stage:
            found[step.name] = done
            if step.name == name:
                raise Reached
        return done

    with pytest.raises(Reached):
        walk(config, do, stages=stage)
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("influence")


def configured(directory: Path, *overrides: str) -> RunConfig:
    return load_config(write_config(directory), list(overrides))


def scores(config: RunConfig, done: Done) -> list[dict[str, Any]]:
    sql = "FROM influence_scores WHERE fingerprint = $1 ORDER BY prompt_id, validation_set"
    return Warehouse(Path(config.root)).query(sql, [done.fingerprint]).to_pylist()


@pytest.fixture(scope="module")
def plain(directory: Path) -> list[dict[str, Any]]:
    config = configured(directory)
    return scores(config, run_to(config, "score")["score"])


def assert_alike(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    assert [(r["prompt_id"], r["validation_set"]) for r in found] == [
        (r["prompt_id"], r["validation_set"]) for r in expected
    ]
    assert [r["cosine"] for r in found] == pytest.approx([r["cosine"] for r in expected], abs=1e-5)


def test_two_processes_and_kept_derivatives_give_the_same_scores(directory: Path, plain: list[dict[str, Any]]) -> None:
    config = configured(
        directory, "influence.type=exact", "influence.workers=2", "influence.per_token=true", "influence.max_kl=1"
    )
    done = run_to(config, "score")["score"]
    assert_alike(scores(config, done), plain)
    root = Path(config.root)
    assert not list(root.glob("lake/scores/*/directions.safetensors")), "as large as the policy, and of no more use"
    kept = [path for path in done.outputs["lake"] if path.startswith("lake/per_token/")]
    rows = [row for path in kept for row in pq.read_table(root / path).to_pylist()]
    assert {row["validation_set"] for row in rows} == {"minus", "shared"}
    globs = {
        "rollouts": str(root / "lake/rollouts/*/*.parquet"),
        "per_token": f"{root}/lake/per_token/{done.fingerprint}/*.parquet",
    }
    dots = {
        (row["prompt_id"], row["validation_set"]): row["dot"]
        for row in Warehouse(root).query(PER_TOKEN.read_text(), globs).to_pylist()
        if row["dot"] is not None
    }
    scale = max(abs(row["dot"]) for row in plain)
    for row in plain:
        if row["norm"] > 0:
            assert dots[row["prompt_id"], row["validation_set"]] == pytest.approx(row["dot"], abs=1e-4 * scale)


def test_a_truncated_shard_of_rollouts_is_collected_again(directory: Path, plain: list[dict[str, Any]]) -> None:
    config = configured(directory, "influence={type: exact, split_half_prompts: 3}")
    found: dict[str, Done] = {}

    def do(step: Step) -> Done:
        if step.name == "rollouts_train":
            shard = Path(config.root) / perform(step).outputs["shards"][0]
            shard.write_bytes(shard.read_bytes()[:300])
        found[step.name] = perform(step)
        if step.name == "score":
            raise Reached
        return found[step.name]

    with pytest.raises(Reached):
        walk(config, do, stages=1)
    assert not found["rollouts_train"].cached
    assert_alike(scores(config, found["score"]), plain)


def test_a_cascade_ranks_those_it_left_out_last(directory: Path, plain: list[dict[str, Any]]) -> None:
    cascade = "influence={type: exact, cascade: {blocks: 1, trajectories: 2, keep: 1.5}}"
    config = configured(directory, cascade, "selection.alpha=0.2")
    done = run_to(config, "select")
    found = scores(config, done["score"])
    assert [(r["prompt_id"], r["validation_set"]) for r in found] == [
        (r["prompt_id"], r["validation_set"]) for r in plain
    ]
    exactly = [(row, expected) for row, expected in zip(found, plain, strict=True) if row["estimator"] == "exact"]
    assert 0 < len(exactly) < len(found)
    assert_alike(*zip(*exactly, strict=True))  # type: ignore[misc]
    for name in ("minus", "shared"):
        ranks = {
            kind: [r["rank"] for r in found if (r["estimator"], r["validation_set"]) == (kind, name)]
            for kind in ("exact", "cascade")
        }
        assert max(ranks["exact"]) < min(ranks["cascade"])
        assert sorted(ranks["exact"] + ranks["cascade"]) == list(range(1, len(found) // 2 + 1))
    chosen = Warehouse(Path(config.root)).query(
        "SELECT prompt_id FROM selections WHERE fingerprint = $1 AND selected", [done["select"].fingerprint]
    )
    assert set(chosen["prompt_id"].to_pylist()) <= {row["prompt_id"] for row, _ in exactly}


def test_stale_rollouts_are_warned_of_and_told_in_sql(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(directory, "influence.type=exact", "influence.max_kl=1.0e-6")
    with caplog.at_level("INFO"), use_reporter(LogReporter()):
        done = run_to(config, "score", stage=2)["score"]
    assert done.outputs["n_stale"] == done.outputs["n_scored"] > 0
    assert "are stale (KL above 1e-06 nats" in caplog.text
    told = Warehouse(Path(config.root)).query(
        "SELECT stage, metric, value FROM stage_diagnosis WHERE metric IN ('share_stale', 'kl_median')"
    )
    facts = {(row["stage"], row["metric"]): row["value"] for row in told.to_pylist()}
    assert facts[2, "share_stale"] == 1.0 and facts[1, "kl_median"] < 1e-6 < facts[2, "kl_median"]


def test_stale_rollouts_are_collected_again(directory: Path) -> None:
    config = configured(directory, "influence.type=exact", "influence.max_kl=1.0e-6", "influence.on_stale=recollect")
    steps = run_to(config, "select", stage=2)
    warehouse = Warehouse(Path(config.root))
    drift = warehouse.query("FROM rollout_drift WHERE fingerprint = $1", [steps["drift"].fingerprint])
    stale = {
        split: {row["prompt_id"] for row in drift.to_pylist() if row["stale"] and row["split"] == split}
        for split in ("train", "validation")
    }
    again = {
        split: warehouse.query(
            "FROM rollout_stats WHERE fingerprint = $1", [steps[f"recollect_{split}"].fingerprint]
        ).to_pylist()
        for split in stale
    }
    for split in stale:
        assert len(stale[split]) == steps["drift"].outputs[f"n_stale_{split}"] > 0
        assert {row["prompt_id"] for row in again[split]} == stale[split]
    # What was rolled out by the policy that is scored has not drifted; those without signal now are not scored.
    after = warehouse.query("FROM rollout_drift WHERE fingerprint = $1", [steps["score"].fingerprint]).to_pylist()
    scored = [row for row in after if row["split"] == "train"]
    assert {row["prompt_id"] for row in scored} == {row["prompt_id"] for row in again["train"] if row["has_signal"]}
    assert max(row["kl"] for row in scored) < 1e-6 and not any(row["stale"] for row in scored)
    pool = warehouse.query("FROM selections WHERE fingerprint = $1", [steps["select"].fingerprint])
    assert len(pool) == len({row["prompt_id"] for row in scores(config, steps["score"])})


def test_features_answer_to_sql(directory: Path, plain: list[dict[str, Any]]) -> None:
    config = configured(
        directory, "influence={type: projected, kind: sparse, keep_ratio: 0.5, dimension: 512}", "name=projected"
    )
    done = run_to(config, "diagnose")["score"]
    root = Path(config.root)
    found = {(row["prompt_id"], row["validation_set"]): row["cosine"] for row in scores(config, done)}
    globs = {
        "train": f"{root}/lake/features/{done.fingerprint}/*.parquet",
        "validation": f"{root}/lake/validation_features/{done.fingerprint}/*.parquet",
    }
    by_sql = Warehouse(root).query(FEATURES.read_text(), globs).to_pylist()
    assert len(by_sql) == len(found) == len(plain)
    for row in by_sql:
        assert row["cosine"] == pytest.approx(found[row["prompt_id"], row["validation_set"]], abs=5e-3)
    for row in plain:
        assert found[row["prompt_id"], row["validation_set"]] == pytest.approx(row["cosine"], abs=0.25)
    told = Warehouse(root).query("SELECT metric FROM stage_diagnosis WHERE run_id = 'projected'")
    assert {"projection_singular_min", "projection_inner_product_max", "split_half_spearman"} <= set(
        told["metric"].to_pylist()
    )
