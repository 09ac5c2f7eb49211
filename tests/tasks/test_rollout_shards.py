"""A rollout step leaves the same rows and bytes whoever rolls its shards out, and keeps what finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shard_cases import elsewhere

from pipeline_lib.config import ChainSource, DaskRunner, Generation, LocalRunner, Offline, Prompts, RayRunner, RunConfig
from tasks import rollouts
from tasks.policy import ImportPolicy
from tasks.prompts import IngestPrompts
from tasks.rollout_shard import RolloutShard
from tasks.rollouts import CollectTrain
from tasks.step import Done, perform
from warehouse import Warehouse


def config(root: Path, **settings: Any) -> RunConfig:
    def chains(seed: int) -> list[ChainSource]:
        return [ChainSource(kinds=["plus", "minus"], lengths=[2], count=6, seed=seed)]

    return RunConfig(
        name="run",
        root=str(root),
        prompts=Prompts(train=chains(1), validation={"v": chains(2)}, evaluation={"e": chains(3)}),
        offline=Offline(samples=2, prompts_per_shard=2),
        generation=Generation(max_tokens=12),
        **settings,
    )


def step_of(run: RunConfig) -> CollectTrain:
    policy = perform(ImportPolicy(run, 0))
    return CollectTrain(run, 0, ingest=perform(IngestPrompts(run, 0, policy=policy)), policy=policy)


def left(step: CollectTrain) -> dict[str, Any]:
    warehouse = Warehouse(step.root)
    tables = {
        name: warehouse.query(f"FROM {name} WHERE fingerprint = $1 ORDER BY ALL", [step.fingerprint]).to_pylist()
        for name in ("shards", "rollout_stats")
    }
    return tables | {"bytes": [(step.root / row["path"]).read_bytes() for row in tables["shards"]]}


def sent(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> None:
    monkeypatch.setattr(rollouts, "open_runner", lambda config: elsewhere(fails_at))


def test_shards_that_were_rolled_out_elsewhere_in_another_order_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = step_of(config(tmp_path / "here"))
    done = perform(here)
    sent(monkeypatch)
    there = step_of(config(tmp_path / "there"))
    assert perform(there).outputs == done.outputs
    assert left(there) == left(here)
    assert len(left(here)["shards"]) == 3


def test_after_a_failure_elsewhere_only_what_had_not_finished_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = step_of(config(tmp_path))
    sent(monkeypatch, fails_at=1)
    with pytest.raises(RuntimeError, match="no room for stage 0/2 · rollouts train · shard 1"):
        perform(step)
    assert [row["shard_index"] for row in left(step)["shards"]] == [2]
    monkeypatch.undo()
    begun: list[int] = []
    work: Callable[[RolloutShard], Any] = rollouts.roll_out_shard

    def note(shard: RolloutShard) -> Any:
        begun.append(shard.index)
        return work(shard)

    monkeypatch.setattr(rollouts, "roll_out_shard", note)
    perform(step)
    assert begun == [0, 1]


def test_who_works_on_shards_changes_no_fingerprint(tmp_path: Path) -> None:
    done = Done("f00d", {"policy_id": "p", "path": "/policy"}, cached=True)
    step = CollectTrain(config(tmp_path), 0, ingest=done, policy=done)
    others = [
        replace(step, run=config(tmp_path, task_runner=runner))
        for runner in (LocalRunner(), DaskRunner(workers=3), RayRunner(num_gpus=1))
    ]
    assert {other.fingerprint for other in others} == {step.fingerprint}
