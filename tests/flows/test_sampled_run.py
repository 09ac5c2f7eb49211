"""A run that rolls some of its pool out, and is told by the policy's states what the rest would show."""

from __future__ import annotations

from pathlib import Path

import pytest
from flow_cases import rows, write_config

from flows.chain import StageDone, finish, walk
from flows.runs import record_run
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config
from tasks.keeping.symptoms import examine_run
from tasks.step import perform
from warehouse import Warehouse

N_ROLLED_OUT = 10


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    config = write_config(tmp_path_factory.mktemp("sampled"))
    selection = "selection={type: relevance, alpha: 0.3}"
    return load_config(config, [selection, f"offline.prompts={N_ROLLED_OUT}", "train.sampler={type: greso}"])


@pytest.fixture(scope="module")
def stages(run: RunConfig) -> list[StageDone]:
    record_run(run, "running")
    prepared, stages = walk(run, perform, stages=2)
    finish(run, prepared, stages, perform)
    return stages


def pool(run: RunConfig, done: StageDone) -> dict[str, dict[str, object]]:
    sql = "FROM selections WHERE fingerprint = $1"
    return {str(row["prompt_id"]): row for row in rows(Path(run.root), sql, [done.selection.fingerprint])}


def test_the_whole_pool_is_ranked_though_few_were_rolled_out(run: RunConfig, stages: list[StageDone]) -> None:
    root = Path(run.root)
    rolled_out = {row["prompt_id"]: row for row in rows(root, "FROM rollout_stats WHERE phase = 'offline'")}
    members = {row["prompt_id"] for row in rows(root, "FROM prompt_sources WHERE split = 'train'")}
    assert len(rolled_out) == N_ROLLED_OUT and rolled_out.keys() < members
    first = pool(run, stages[0])
    assert first.keys() == members
    assert {i for i, row in first.items() if row["pass_rate"] is not None} == rolled_out.keys()
    chosen = {i for i, row in first.items() if row["selected"]}
    assert len(chosen) == round(0.3 * len(members))
    assert chosen - rolled_out.keys(), "of those that nothing was known of, some are trained on"
    assert all("expected gain" in str(first[i]["reason"]) for i in chosen)
    assert all(str(first[i]["reason"]).endswith("not rolled out yet") for i in chosen - rolled_out.keys())


def test_the_next_stage_knows_what_the_first_has_trained_on(run: RunConfig, stages: list[StageDone]) -> None:
    trained = rows(
        Path(run.root), "FROM prompt_totals WHERE fingerprint = $1 AND last_n > 0", [stages[0].train.fingerprint]
    )
    second = pool(run, stages[1])
    assert trained
    assert all(second[row["prompt_id"]]["pass_rate"] == row["last_pass_rate"] for row in trained)


def test_what_is_drawn_is_drawn_again(run: RunConfig, stages: list[StageDone]) -> None:
    """Of another run in the same root: the same ten, found rolled out."""
    again = run.model_copy(update={"name": "again"})
    record_run(again, "running")
    prepared, _ = walk(again, perform, stages=0)
    assert prepared.rollouts_train.cached
    other = run.model_copy(update={"name": "other", "offline": run.offline.model_copy(update={"prompts": 11})})
    record_run(other, "running")
    assert not walk(other, perform, stages=0)[0].rollouts_train.cached


def test_report_and_doctor_take_a_pool_that_is_known_in_part(run: RunConfig, stages: list[StageDone]) -> None:
    assert "not rolled out yet" in (Path(run.root) / "reports" / "tiny.html").read_text()
    for symptom in examine_run(Warehouse(Path(run.root)), "tiny"):
        assert "nan" not in symptom.what + symptom.cause
