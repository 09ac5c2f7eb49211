"""A training step that ends before its last update says so, and why."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.config import ChainSource, Prompts, RunConfig
from pipeline_lib.grpo.fill import StepBatch
from pipeline_lib.grpo.job import TrainResult
from pipeline_lib.grpo.metrics import step_row
from pipeline_lib.grpo.records import write_step_records
from tasks.progress import LogReporter, use_reporter
from tasks.step import Done, perform
from tasks.training import TrainStage

WHY = "nothing left to learn at step 1: of 4 prompts 0 were skipped, 0 were all right, 4 all wrong, none mixed"


class Listener(LogReporter):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def stage(root: Path) -> TrainStage:
    chains = [ChainSource(kinds=["plus"], lengths=[1], count=2)]
    run = RunConfig(
        name="run", root=str(root), prompts=Prompts(train=chains, validation={"v": chains}, evaluation={"e": chains})
    )
    policy = Done("policy", {"policy_id": "p0", "path": "p0"}, cached=True)
    done = Done("before", {}, cached=True)
    return TrainStage(run, 1, ingest=done, policy=policy, selection=done, history=())


def test_a_stage_that_ended_early_says_why_and_keeps_it(tmp_path: Path) -> None:
    step = stage(tmp_path)
    directory = step._directory
    row = step_row(StepBatch([]), None) | {"learning_rate": 0.1, "sampler_metrics": "{}"}
    row |= dict.fromkeys(("step_time", "update_time", "logprob_time"), 0.5)
    write_step_records(directory / "records", 1, row, StepBatch([]), "p0")
    result = TrainResult(
        policy_id="p1", policy_path=str(directory), n_parameters=1, steps=1, taken_step=1, ended_early=WHY
    )
    (directory / "result.json").write_text(result.model_dump_json())
    listener = Listener()
    with use_reporter(listener):
        done = perform(step)
    assert listener.said == [f"{step.label}: {WHY}."]
    assert (done.outputs["steps"], done.outputs["ended_early"]) == (1, WHY)
