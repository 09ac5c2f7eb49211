"""The steps of a run that log: what TensorBoard has of a stage that failed once, was resumed, and was evaluated."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.chain import walk
from pipeline_lib.config import (
    ChainSource,
    MlflowTracker,
    Prompts,
    RunConfig,
    TensorBoardTracker,
    Tracker,
    TrackioTracker,
    WandbTracker,
)
from pipeline_lib.evaluation import Metric
from pipeline_lib.grpo.fill import StepBatch
from pipeline_lib.grpo.job import TrainResult
from pipeline_lib.grpo.records import write_step_records
from tasks.errors import StepFailed
from tasks.evaluation import Evaluate
from tasks.progress import LogReporter, use_reporter
from tasks.step import Done, Step, perform
from tasks.training import TrainStage
from warehouse import Warehouse

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed (extra `tensorboard`)"
)
STEP = {
    "loss": 0.25,
    "frac_reward_zero_std": 0.5,
    "solved_all": 1,
    "solved_some": 2,
    "solved_none": 3,
    "n_ungraded": 0,
    "grad_norm": 0.5,
    "learning_rate": 0.125,
    "clip_ratio_low_mean": 0.0,
    "num_tokens": 10,
    "generated_tokens": 10,
    "generation_rounds": 1,
    "prompts_proposed": 4,
    "prompts_skipped": 0,
    "prompts_rolled_out": 4,
    "rollouts": 8,
    "groups_trained": 2,
    "groups_carried": 0,
    "sampler_metrics": '{"p_right": 0.5}',
    "step_time": 1.0,
    "rollout_time": 0.5,
    "verify_time": 0.125,
    "update_time": 0.25,
}


class Sayings(LogReporter):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


class Worker:
    """Leaves the records of one step whenever it is looked at, then ends."""

    def __init__(self, directory: Path, steps: Sequence[int], returncode: int) -> None:
        self.directory, self.steps, self.returncode = directory, list(steps), returncode

    def poll(self) -> int | None:
        if self.steps:
            step = self.steps.pop(0)
            write_step_records(self.directory / "records", step, STEP | {"reward": step / 8}, StepBatch([]), "p0")
            return None
        if self.returncode == 0:
            result = TrainResult(
                policy_id="p0", policy_path=str(self.directory), n_parameters=1, steps=3, taken_step=3, ended_early=None
            )
            (self.directory / "result.json").write_text(result.model_dump_json())
        return self.returncode


def config(root: Path, *trackers: Tracker) -> RunConfig:
    chains = [ChainSource(kinds=["plus"], lengths=[1], count=2)]
    prompts = Prompts(train=chains, validation={"v": chains}, evaluation={"e": chains})
    return RunConfig(name="run", root=str(root), prompts=prompts, tracking=list(trackers))


def train_stage(run: RunConfig) -> TrainStage:
    policy = Done("policy", {"policy_id": "p0", "path": "p0"}, cached=True)
    done = Done("before", {}, cached=True)
    return TrainStage(run, 1, ingest=done, policy=policy, selection=done, history=())


def attempt(step: TrainStage, steps: Sequence[int], returncode: int, monkeypatch: pytest.MonkeyPatch) -> Done:
    @contextmanager
    def worker_process(module: str, args: list[str], log: Path) -> Iterator[Worker]:
        log.write_text("the last words")
        yield Worker(Path(args[0]), steps, returncode)

    monkeypatch.setattr("tasks.training.worker_process", worker_process)
    monkeypatch.setattr("tasks.training.POLL_SECONDS", 0.0)
    monkeypatch.setattr(TrainStage, "_prepare", lambda *args: None)
    return perform(step)


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory)).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@needs_tensorboard
def test_a_stage_that_failed_and_was_resumed_is_one_run_with_each_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = train_stage(config(tmp_path, TensorBoardTracker()))
    with pytest.raises(StepFailed, match="the last words"):
        attempt(step, [1, 2], 1, monkeypatch)
    done = attempt(step, [2, 3], 0, monkeypatch)  # goes on from the checkpoint of step 1
    found = scalars(tmp_path / "tensorboard" / "run" / f"stage-1-{step.fingerprint}")
    assert found["reward"] == [(1, 0.125), (2, 0.25), (3, 0.375)]
    assert found["clip_ratio/low_mean"] == [(1, 0.0), (2, 0.0), (3, 0.0)]
    assert found["rlsift/sampler/p_right"] == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert {"loss", "rlsift/solved_all", "rlsift/rollout_time"} < set(found)

    monkeypatch.setattr(Evaluate, "roll_out_all", lambda self, at: [])
    monkeypatch.setattr("tasks.evaluation.load_groups", lambda root, done: [])
    monkeypatch.setattr("tasks.evaluation.set_members", lambda *args: {"held-out": []})
    metrics = [Metric("avg", 8, 0.25, None, 1), Metric("pass", 8, 0.75, None, 1)]
    monkeypatch.setattr("tasks.evaluation.evaluate_groups", lambda *args: metrics)
    perform(Evaluate(step.run, 1, ingest=step.ingest, policy=done))
    evaluated = scalars(tmp_path / "tensorboard" / "run" / f"stage-1-{step.fingerprint}")
    assert evaluated == found | {"eval/held-out/avg@8": [(3, 0.25)], "eval/held-out/pass@8": [(3, 0.75)]}


@needs_tensorboard
def test_a_tracker_that_cannot_write_fails_no_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file, no directory")
    step = train_stage(config(tmp_path, TensorBoardTracker(directory=str(tmp_path / "taken"))))
    reporter = Sayings()
    with use_reporter(reporter):
        attempt(step, [1, 2, 3], 0, monkeypatch)
    assert len(reporter.said) == 1 and reporter.said[0].startswith("Tracker tensorboard failed")
    steps = Warehouse(tmp_path).query("SELECT step FROM train_steps ORDER BY step")["step"].to_pylist()
    assert steps == [1, 2, 3]


def test_trackers_change_no_step_s_fingerprint(tmp_path: Path) -> None:
    def fingerprints(run: RunConfig) -> list[str]:
        found = []

        def do(step: Step) -> Done:
            found.append(step.fingerprint)
            outputs: dict[str, Any] = defaultdict(str, policy_id="p")
            return Done(step.fingerprint, outputs, cached=False)

        walk(run, do, stages=2)
        return found

    plain = fingerprints(config(tmp_path))
    trackers = (TensorBoardTracker(), WandbTracker(mode="online"), MlflowTracker(experiment="e"), TrackioTracker())
    assert fingerprints(config(tmp_path, *trackers)) == plain
    assert len(plain) > 10
