"""What `rlsift plan` says of a run: complete, to run and why, or open; and what it says is what a run would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from flow_cases import write_config
from pretended import pretend, run_pretended, shard_of

from flows.chain import first_pending, look_up, walk
from flows.cli import app
from flows.planning import PlannedStep, plan_run
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config
from tasks.locks import lock_path
from tasks.step import Done, Step
from tasks.training import TrainStage
from warehouse import Warehouse
from warehouse.files import exclusive_lock


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The config of a run that is recorded complete."""
    path = write_config(tmp_path_factory.mktemp("plan"))
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch)
        run_pretended(load_config(path))
        yield path


def plan_of(config: RunConfig) -> dict[tuple[int, str], PlannedStep]:
    """By stage and name."""
    return {(step.stage, step.name): step for step in plan_run(config).steps}


def states(plan: dict[tuple[int, str], PlannedStep], state: str) -> dict[tuple[int, str], str]:
    return {key: step.why for key, step in plan.items() if step.state == state}


def step_at(config: RunConfig, stage: int, name: str) -> Step:
    """That step of a run which is complete."""
    found: list[Step] = []

    def note(step: Step) -> Done:
        found.append(step)
        return look_up(step)

    walk(config, note, stages=stage)
    return next(step for step in found if (step.stage, step.name) == (stage, name))


def mark(step: Step, status: str, error: str | None = None) -> None:
    row = {"fingerprint": step.fingerprint, "status": status, "error": error}
    Warehouse(step.root).write({"steps": pa.Table.from_pylist([row])})


def test_a_run_that_is_recorded_has_nothing_to_do(config_file: Path) -> None:
    plan = plan_of(load_config(config_file))
    assert set(states(plan, "complete").values()) == {""} and len(states(plan, "complete")) == len(plan) == 16


def test_of_a_root_that_is_not_there_nothing_is_recorded_and_nothing_is_written(tmp_path: Path) -> None:
    plan = plan_run(load_config(write_config(tmp_path)))
    assert plan.steps[0] == PlannedStep(0, "policy", "runs", "never run")
    assert {(step.state, step.why) for step in plan.steps[1:]} == {("follows", "follows from stage 0 · policy")}
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_setting_of_training_names_itself_and_leaves_the_later_stages_open(config_file: Path) -> None:
    plan = plan_of(load_config(config_file, ["train.learning_rate=1e-4"]))
    change = "train.learning_rate: 0.0005 -> 0.0001"
    assert states(plan, "runs") == {(1, "train"): change}
    follows = "follows from stage 1 · train"
    assert states(plan, "follows") == {
        (1, "evaluate"): follows,
        (2, "score"): follows,
        (2, "select"): follows,
        (2, "diagnose"): follows,
        (2, "train"): f"{follows}; {change}",
        (2, "evaluate"): follows,
        (2, "report"): follows,
    }
    assert len(states(plan, "complete")) == 8


def test_what_reads_only_a_fingerprint_is_told_exactly(config_file: Path) -> None:
    plan = plan_of(load_config(config_file, ["selection.alpha=0.5"]))
    assert states(plan, "runs") == {
        (1, "select"): "selection.alpha: 0.4 -> 0.5",
        (1, "diagnose"): "input selection changed (see stage 1 · select)",
        (1, "train"): "input selection changed (see stage 1 · select)",
    }
    assert states(plan, "follows")[2, "select"] == "follows from stage 1 · train; selection.alpha: 0.4 -> 0.5"


def test_evaluations_alone_run_where_only_they_changed(config_file: Path) -> None:
    plan = plan_of(load_config(config_file, ["evaluation.samples=4"]))
    evaluated = {(stage, "evaluate"): "samples: 2 -> 4" for stage in (0, 1, 2)}
    inputs = "; ".join(f"input made_from_{stage} changed (see stage {stage} · evaluate)" for stage in (0, 1, 2))
    assert states(plan, "runs") == evaluated | {(2, "report"): inputs}
    assert not states(plan, "follows")


def test_another_type_of_something_is_one_change(config_file: Path) -> None:
    plan = plan_of(load_config(config_file, ["train.sampler={type: uniform}"]))
    assert states(plan, "runs") == {(1, "train"): 'train.sampler.type: "greso" -> "uniform"'}


def test_another_contract_of_the_code_is_told(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainStage, "contract", TrainStage.contract + 1)
    plan = plan_of(load_config(config_file))
    old, new = TrainStage.contract - 1, TrainStage.contract
    assert states(plan, "runs") == {(1, "train"): f"its code writes something else now (contract {old} -> {new})"}


def test_fewer_stages_drop_steps_and_more_have_never_run(config_file: Path) -> None:
    plan = plan_run(load_config(config_file, ["stages=1"]))
    assert plan.dropped == [
        f"stage 2 · {name}" for name in ("score", "select", "diagnose", "train", "evaluate", "report")
    ]
    assert [(step.stage, step.name, step.state) for step in plan.steps if step.state != "complete"] == [
        (1, "report", "runs")
    ]
    more = plan_of(load_config(config_file, ["stages=3"]))
    assert states(more, "runs") == {(3, "score"): "never run"}
    assert states(more, "follows")[3, "train"] == "follows from stage 3 · score"


def test_what_another_run_has_recorded_is_found(config_file: Path) -> None:
    plan = plan_of(load_config(config_file, ["name=other"]))
    assert set(states(plan, "complete").values()) == {"recorded by another run or under an earlier config"}
    assert states(plan, "runs") == {(2, "report"): "never run"}  # it bears the run's name


def test_a_lost_file_is_named_and_what_is_left_is_gone_on_with(config_file: Path) -> None:
    config = load_config(config_file)
    step = step_at(config, 0, "rollouts_train")
    shard = shard_of(step)
    content = shard.read_bytes()
    shard.unlink()
    gone = f"its {shard.relative_to(step.root)} is gone or torn"
    assert states(plan_of(config), "runs") == {(0, "rollouts_train"): gone}
    other = shard.with_name("shard-00001.parquet")
    other.write_bytes(content)
    plan = plan_of(config)
    assert states(plan, "goes on") == {(0, "rollouts_train"): f"{gone}; goes on from 1 finished shard"}
    assert len(states(plan, "complete")) == 15
    other.rename(shard)


def test_a_step_that_did_not_end_is_told_as_failed_interrupted_or_worked_on(config_file: Path) -> None:
    config = load_config(config_file)
    step = step_at(config, 1, "train")
    mark(step, "failed", "StepFailed: no room\nits log ends with")
    assert states(plan_of(config), "runs") == {(1, "train"): "failed: StepFailed: no room"}
    mark(step, "running")
    assert states(plan_of(config), "runs") == {(1, "train"): "interrupted: its process is gone"}
    assert isinstance(step, TrainStage)
    checkpoints = step.root / "stages" / "tiny" / f"1-{step.fingerprint}" / "checkpoints"
    for number in (2, 10):
        (checkpoints / f"step-{number:06d}").mkdir(parents=True)
    left = "interrupted: its process is gone; goes on from the checkpoint of step 10"
    assert states(plan_of(config), "goes on") == {(1, "train"): left}
    with exclusive_lock(lock_path(step.root, step.fingerprint), timeout_seconds=5):
        (worked_on,) = states(plan_of(config), "running").values()
        assert worked_on.startswith("process ") and worked_on.endswith(" works on it")
    mark(step, "completed")


def test_the_command_prints_each_step_with_its_reason(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["plan", str(config_file), "--set", "evaluation.samples=4", "--set", "stages=1"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "samples: 2 -> 4" in out and "No longer part of the run: stage 2 · score" in out
    assert "Of 11 steps 8 recorded complete; 3 to run." in " ".join(out.split())


def test_a_data_set_that_is_missing_is_told_in_words(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["plan", str(config_file), "--set", "prompts.train=[{type: file, path: /none.jsonl}]"])
    assert ended.value.code == 2
    assert "/none.jsonl: no such file" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("change", ["train.steps=2", "evaluation.samples=4", "name=other"])
def test_the_first_step_that_is_not_complete_is_the_one_that_a_run_would_do_next(
    config_file: Path, change: str
) -> None:
    config = load_config(config_file, [change])
    todo = next(step for step in plan_run(config).steps if step.state != "complete")
    pending = first_pending(config)
    assert pending is not None and (pending.stage, pending.name) == (todo.stage, todo.name)
