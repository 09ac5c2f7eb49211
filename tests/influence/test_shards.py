"""A pool scored shard by shard: the same whoever scores which shard, and nothing twice."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from influence_cases import group_of

from pipeline_lib.config import Cascade, ExactInfluence, Influence, InfluenceSelection, ProjectedInfluence
from pipeline_lib.influence import make_scorer
from pipeline_lib.influence.cascade import parameters_of_last_blocks, survivors, thinned
from pipeline_lib.influence.drift import measure_drift
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.objective import weighted_trajectories
from pipeline_lib.influence.scores import InfluenceScores, scores_from_products
from pipeline_lib.influence.shards import (
    complete,
    direction_norms,
    halves_products,
    n_scored,
    pool_products,
    prepare,
    products_path,
    score_units,
    unfinished,
    units,
    validation_drifts,
)
from pipeline_lib.policy import load_policy
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import groups_to_table

BUILTIN = Path(__file__).parents[2] / "pipeline_lib" / "policy" / "builtin"
KINDS: list[list[float | None]] = [
    [1.0, 0.0, 0.0, 1.0],
    [1.0, 1.0, 1.0, 1.0],
    [0.0, None, 1.0, 0.5],
    [1.0, 0.0, 0.0, 0.0],
]


def groups_of(prefix: str, n: int, seed: int) -> list[RolloutGroup]:
    rng = np.random.default_rng(seed)
    return [group_of(f"{prefix}{i:02d}", rng, KINDS[i % len(KINDS)]) for i in range(n)]


POOL = groups_of("p", 10, 1)
VALIDATION = {"plus": groups_of("v", 3, 2), "minus": groups_of("w", 4, 3)}


def job_of(tmp_path: Path, influence: Influence, shard_size: int = 4, **more: Any) -> ScoreJob:
    def written(name: str, groups: Sequence[RolloutGroup]) -> str:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(groups_to_table(groups), path)
        return str(path)

    tmp_path.mkdir(exist_ok=True)
    shards = [written(f"rollouts-{i:02d}", POOL[i : i + shard_size]) for i in range(0, len(POOL), shard_size)]
    defaults: dict[str, Any] = {
        "rollouts": [shards],
        "validation_rollouts": [[written("validation", [g for groups in VALIDATION.values() for g in groups])]],
        "split_half": [],
    }
    return ScoreJob(
        fingerprint="f",
        directory=str(tmp_path / "scores"),
        lake=str(tmp_path / "lake"),
        policy_path=str(BUILTIN),
        device="cpu",
        dtype="float32",
        temperature=0.9,
        tokens_per_micro_batch=200,
        influence=influence,
        validation={name: [g.prompt_id for g in groups] for name, groups in VALIDATION.items()},
        **(defaults | more),
    )


def scored(job: ScoreJob) -> InfluenceScores:
    Path(job.directory).mkdir(exist_ok=True)
    scorer = make_scorer(job)
    prepare(job, scorer, lambda _: None)
    score_units(job, scorer, unfinished(job), lambda _: None)
    return scores_of(job)


def scores_of(job: ScoreJob) -> InfluenceScores:
    products, _ = pool_products(job)
    return scores_from_products(products, list(job.validation), direction_norms(job))


def policy() -> Any:
    return load_policy(BUILTIN, device=torch.device("cpu"), dtype=torch.float32)


def directly(pool: Sequence[RolloutGroup]) -> InfluenceScores:
    return exact_scores(
        policy(), pool, VALIDATION, temperature=0.9, tokens_per_micro_batch=200, progress=lambda _: None
    )


def assert_same(found: InfluenceScores, expected: InfluenceScores) -> None:
    order = [found.prompt_ids.index(prompt_id) for prompt_id in expected.prompt_ids]
    assert len(found.prompt_ids) == len(expected.prompt_ids)
    np.testing.assert_allclose(found.cosine[order], expected.cosine, atol=1e-5)
    np.testing.assert_allclose(found.norm[order], expected.norm, rtol=1e-5)


@pytest.mark.parametrize("shard_size", [1, 4, 100])
def test_scores_do_not_depend_on_the_size_of_shards(tmp_path: Path, shard_size: int) -> None:
    assert_same(scored(job_of(tmp_path, ExactInfluence(), shard_size)), directly(POOL))


def test_two_processes_score_what_one_does(tmp_path: Path) -> None:
    job = job_of(tmp_path, ExactInfluence(), split_half=[POOL[0].prompt_id])
    Path(job.directory).mkdir()
    prepare(job, make_scorer(job), lambda _: None)
    assert units(job) == ["shard-00000", "shard-00001", "shard-00002", "halves"]
    portions = [units(job)[0::2], units(job)[1::2]]
    workers = [
        subprocess.Popen([sys.executable, "-m", "pipeline_lib.influence.worker", str(job.write()), *portion])
        for portion in portions
    ]
    assert [worker.wait(600) for worker in workers] == [0, 0]
    assert unfinished(job) == []
    assert_same(scores_of(job), directly(POOL))
    assert n_scored(job, "shard-00000") == sum(group.has_signal for group in POOL[:4])
    assert n_scored(job, "halves") == 2


def test_a_finished_shard_is_not_scored_again(tmp_path: Path) -> None:
    job = job_of(tmp_path, ExactInfluence())
    expected = scored(job)
    before = {unit: products_path(job, unit).stat().st_mtime_ns for unit in units(job)}
    products_path(job, "shard-00001").unlink()
    assert unfinished(job) == ["shard-00001"]
    assert_same(scored(job), expected)
    after = {unit: products_path(job, unit).stat().st_mtime_ns for unit in units(job)}
    assert [unit for unit in units(job) if after[unit] != before[unit]] == ["shard-00001"]


def test_a_truncated_shard_is_scored_again(tmp_path: Path) -> None:
    job = job_of(tmp_path, ExactInfluence())
    expected = scored(job)
    path = products_path(job, "shard-00001")
    path.write_bytes(path.read_bytes()[:200])
    assert unfinished(job) == ["shard-00001"]
    assert_same(scored(job), expected)


def test_a_shard_that_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path, ExactInfluence(), shard_size=2)
    overflowing = [
        dataclasses.replace(
            group,
            trajectories=tuple(
                dataclasses.replace(t, behaviour_logprobs=(-1000.0,) * len(t.completion_token_ids))
                for t in group.trajectories
            ),
        )
        for group in POOL[2:4]
    ]
    pq.write_table(groups_to_table(overflowing), job.rollouts[0][1])
    with pytest.raises(ValueError, match="prompt p02: its gradient has length"):
        scored(job)
    assert unfinished(job) == units(job)[1:]


def test_of_rollouts_collected_again_the_newest_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    newer = [group_of(POOL[i].prompt_id, rng, [0.0, 1.0, 1.0, 0.0]) for i in (0, 5)]
    newest = [group_of(POOL[5].prompt_id, rng, [1.0, 1.0, 1.0, 0.0])]
    job = job_of(tmp_path, ExactInfluence(), split_half=[POOL[5].prompt_id])
    again = []
    for name, groups in (("newer", newer), ("newest", newest)):
        pq.write_table(groups_to_table(groups), tmp_path / f"{name}.parquet")
        again.append([str(tmp_path / f"{name}.parquet")])
    job = job.model_copy(update={"rollouts": [*job.rollouts, *again]})
    pool = [newer[0], *POOL[1:5], newest[0], *POOL[6:]]
    assert_same(scored(job), directly(pool))
    even, odd = halves_products(job)
    halves = [RolloutGroup(f"{newest[0].prompt_id}/{half}", newest[0].trajectories[half::2]) for half in (0, 1)]
    expected = directly(halves)
    np.testing.assert_allclose([even.norm_N[0], odd.norm_N[0]], expected.norm, rtol=1e-5, atol=1e-9)
    drifts = pool_products(job)[1]
    assert drifts.keys() == {group.prompt_id for group in pool if group.has_signal}
    measured = measure_drift(policy(), pool, temperature=0.9, tokens_per_micro_batch=999)
    assert drifts["p05"].kl == pytest.approx(measured["p05"].kl, rel=1e-4)


def test_validation_sets_go_by_their_newest_rollouts_that_give_a_direction(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    newer = [
        group_of("v00", rng, [0.0, 0.0, 1.0]),
        *(group_of(g.prompt_id, rng, [1.0] * 3) for g in VALIDATION["minus"]),
    ]
    pq.write_table(groups_to_table(newer), tmp_path / "newer.parquet")
    job = job_of(tmp_path, ExactInfluence())
    job = job.model_copy(update={"validation_rollouts": [*job.validation_rollouts, [str(tmp_path / "newer.parquet")]]})
    validation = {"plus": [newer[0], *VALIDATION["plus"][1:]], "minus": VALIDATION["minus"]}
    expected = exact_scores(
        policy(), POOL, validation, temperature=0.9, tokens_per_micro_batch=200, progress=lambda _: None
    )
    assert_same(scored(job), expected)
    with_signal = [g.prompt_id for groups in validation.values() for g in groups if g.has_signal]
    assert sorted(validation_drifts(job)) == sorted(with_signal)


def test_features_and_validation_features_stay_in_the_lake(tmp_path: Path) -> None:
    job = job_of(tmp_path, ProjectedInfluence(keep_ratio=0.5, dimension=64, kind="sparse", check_prompts=3))
    scores = scored(job)
    features = [pq.read_table(job.lake_path("features", f"{unit}.parquet")) for unit in units(job)]
    assert sum(map(len, features)) == len(POOL)
    validation = pq.read_table(job.lake_path("validation_features", "validation.parquet"))
    assert validation["validation_set"].to_pylist() == list(VALIDATION)
    assert set(features[0]["projection"].to_pylist()) == set(validation["projection"].to_pylist())
    assert job.path("projection_check.json").exists()
    job.lake_path("validation_features", "validation.parquet").unlink()
    assert unfinished(job) == [] and not complete(job)
    assert_same(scored(job), scores)
    assert complete(job)


def test_derivatives_of_tokens_stay_in_the_lake(tmp_path: Path) -> None:
    job = job_of(tmp_path, ExactInfluence(per_token=True))
    scored(job)
    rows = [
        row for unit in units(job) for row in pq.read_table(job.lake_path("per_token", f"{unit}.parquet")).to_pylist()
    ]
    weighing = [t for group in POOL for t, _ in weighted_trajectories(group)]
    assert len(rows) == len(weighing) * len(VALIDATION)
    job.lake_path("per_token", "shard-00001.parquet").unlink()
    assert unfinished(job) == ["shard-00001"], "what is lost is made again"
    scored(job)
    assert complete(job)


def test_a_cascade_scores_its_survivors_exactly(tmp_path: Path) -> None:
    influence = ExactInfluence(cascade=Cascade(blocks=1, trajectories=2, keep=1.5))
    job = job_of(tmp_path, influence)
    cheap = scored(job.model_copy(update={"cheap": True}))
    assert set(cheap.prompt_ids) == {group.prompt_id for group in POOL}
    kept = survivors(cheap, InfluenceSelection(alpha=0.2), keep=1.5)
    assert len(kept) == 3
    exact = scored(job.model_copy(update={"only": kept}))
    dull = {group.prompt_id for group in POOL if not group.has_signal}
    assert set(exact.prompt_ids) == set(kept) | dull
    expected = directly([group for group in POOL if group.prompt_id in exact.prompt_ids])
    assert_same(exact, expected)
    rest = cheap.without(set(exact.prompt_ids)).to_table("cascade", ranks_after=len(exact.prompt_ids))
    assert min(rest["rank"].to_pylist()) == len(exact.prompt_ids) + 1


def test_the_cheap_pass_is_that_of_plain_autograd(tmp_path: Path) -> None:
    """Its products are those of the blocks' parameters by plain autograd."""
    influence = ExactInfluence(cascade=Cascade(blocks=2, trajectories=4, keep=2))
    job = job_of(tmp_path, influence)
    found = scored(job.model_copy(update={"cheap": True}))
    plain = scored(
        job.model_copy(update={"cheap": True, "directory": str(tmp_path / "plain"), "tokens_per_micro_batch": 1})
    )
    assert_same(found, plain)


def test_more_blocks_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks=99: the policy has \d+ transformer blocks; give at most"):
        parameters_of_last_blocks(policy().model, 99)


def test_thinned_trajectories_speak_for_their_side() -> None:
    weighted = weighted_trajectories(group_of("p", np.random.default_rng(0), [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]))
    kept = thinned(weighted, 4)
    assert len(kept) == 4
    for sign in (1, -1):
        side = [w * len(t.completion_token_ids) for t, w in weighted if w * sign > 0]
        stand_ins = [w * len(t.completion_token_ids) for t, w in kept if w * sign > 0]
        assert len(stand_ins) == 2
        assert sum(stand_ins) == pytest.approx(sum(side))
    assert sorted(thinned(weighted, 100), key=str) == sorted(weighted, key=str)
