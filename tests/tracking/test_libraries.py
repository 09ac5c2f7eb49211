"""What each library has of a stage, read back by the library itself; a stage that is resumed goes on with its run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import wandb_file
from tracking_cases import EVALUATION, FINGERPRINT, STEPS, curves, stage

from pipeline_lib.config import MlflowTracker, TensorBoardTracker, Tracker, WandbTracker
from pipeline_lib.tracking import make_trackers


def needs(package: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"{package} is not installed (extra `{package}`)")


def track_in_two_attempts(config: Tracker, root: Path, logged: int = 0, pause: float = 0.0) -> None:
    """The first attempt dies after two of the three steps; the second carries all three, then the evaluation.

    `logged` is what the warehouse had after the first, for trackers that cannot tell.
    """
    with (
        pytest.raises(RuntimeError, match="killed"),
        make_trackers([config], stage(root), logged=0, warn=pytest.fail) as trackers,
    ):
        trackers.log_steps(STEPS[:2])
        raise RuntimeError("killed")
    time.sleep(pause)
    with make_trackers([config], stage(root), logged=logged, warn=pytest.fail) as trackers:
        trackers.log_steps(STEPS)
    time.sleep(pause)
    with make_trackers([config], stage(root), logged=3, warn=pytest.fail) as trackers:
        trackers.log(3, EVALUATION)


EXPECTED = curves([*STEPS, (3, EVALUATION)])


@needs("tensorboard")
@pytest.mark.parametrize("directory", [None, "elsewhere"])
def test_tensorboard_has_each_step_once(directory: str | None, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    where = None if directory is None else str(tmp_path / directory)
    track_in_two_attempts(TensorBoardTracker(directory=where), tmp_path)
    path = tmp_path / (directory or "tensorboard") / "demo" / f"stage-2-{FINGERPRINT}"
    events = EventAccumulator(str(path)).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == EXPECTED


@needs("tensorboard")
def test_tensorboard_has_each_step_once_also_with_the_clock_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    real = time.time
    for done, behind in ((1, 0), (2, 86_400), (3, 86_400), (3, 2 * 86_400)):
        monkeypatch.setattr(time, "time", lambda behind=behind: real() - behind)
        with make_trackers([TensorBoardTracker()], stage(tmp_path), logged=0, warn=pytest.fail) as trackers:
            trackers.log_steps(STEPS[:done])
    events = EventAccumulator(str(tmp_path / "tensorboard" / "demo" / f"stage-2-{FINGERPRINT}")).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == curves(STEPS)


@needs("tensorboard")
def test_stages_have_tensorboard_directories_of_their_own(tmp_path: Path) -> None:
    for fingerprint in ("a" * 16, "b" * 16):
        with make_trackers(
            [TensorBoardTracker()], stage(tmp_path, fingerprint), logged=0, warn=pytest.fail
        ) as trackers:
            trackers.log_steps(STEPS)
    assert len(list((tmp_path / "tensorboard" / "demo").iterdir())) == 2


@needs("wandb")
def test_wandb_offline_has_each_step_once_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    track_in_two_attempts(
        WandbTracker(project="p", mode="offline"), tmp_path, logged=2, pause=1.1
    )  # its directories are named by the second
    wandb.teardown()  # waits for the process that writes its files
    found: dict[str, list[tuple[int, float]]] = {}
    runs, own_steps = set(), []
    for path in sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb")):
        for record in wandb_file.records(path):
            if record.HasField("run"):
                runs.add((record.run.run_id, record.run.display_name, record.run.run_group, record.run.project))
            if record.HasField("history"):
                row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                own_steps.append(row["_step"])
                step = row.pop("rlsift/step")
                for name, value in row.items():
                    if not name.startswith("_"):
                        found.setdefault(name, []).append((step, value))
    assert runs == {(FINGERPRINT, "demo · stage 2", "demo", "p")}
    assert found == EXPECTED
    assert own_steps == [1, 2, 3, 4]


@needs("mlflow")
def test_mlflow_has_each_step_once_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    track_in_two_attempts(MlflowTracker(experiment="e"), tmp_path)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("e")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "demo · stage 2" and run.info.status == "FINISHED"
    assert run.data.tags["rlsift.fingerprint"] == FINGERPRINT
    found = {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics
    }
    assert found == {name.replace("@", "_at_"): points for name, points in EXPECTED.items()}


TRACKIO = f"""
import json, sqlite3, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_libraries import track_in_two_attempts
from pipeline_lib.config import TrackioTracker
track_in_two_attempts(TrackioTracker(project="p"), Path(sys.argv[1]))
"""


@needs("trackio")
def test_trackio_has_each_step_once_in_one_run(tmp_path: Path) -> None:
    # trackio reads TRACKIO_DIR when it is imported.
    env = os.environ | {"TRACKIO_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", TRACKIO, str(tmp_path)], env=env, check=True, timeout=120)
    query = ["query", "project", "--project", "p", "--json", "--sql", "SELECT * FROM metrics ORDER BY id"]
    command = [sys.executable, "-m", "trackio.cli", *query]
    answer = json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert {row["run_name"] for row in answer["rows"]} == {f"demo · stage 2 · {FINGERPRINT}"}
    assert curves([(row["step"], json.loads(row["metrics"])) for row in answer["rows"]]) == EXPECTED
