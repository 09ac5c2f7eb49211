"""Every deployment of prefect.yaml names a flow that loads, and a run's form takes a config and refuses a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.exceptions import ParameterTypeError
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.schema_tools import ValidationError, validate

from flows.curriculum import curriculum
from flows.dashboard.services import POOLS
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config

ROOT = Path(__file__).parent.parent
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
DEMO = load_config(ROOT / "configs" / "demo.yaml").model_dump(mode="json")


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["name"])
def test_the_entrypoint_loads(deployment: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert isinstance(flow, Flow)
    assert "config" in flow.parameters.properties


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["name"])
def test_a_deployment_is_on_a_pool_that_the_dashboard_makes(deployment: dict) -> None:
    assert deployment["work_pool"]["name"] in POOLS


def test_a_schedule_without_a_config_is_off() -> None:
    schedules = [schedule for deployment in DEPLOYMENTS for schedule in deployment.get("schedules", [])]
    assert schedules
    for schedule in schedules:
        if schedule["active"]:
            RunConfig.model_validate(schedule["parameters"]["config"])


def test_the_config_comes_back_from_a_run_form_as_it_was() -> None:
    config = load_config(ROOT / "configs" / "demo.yaml")
    parameters = curriculum.validate_parameters({"config": config.model_dump(mode="json")})
    assert isinstance(parameters["config"], RunConfig)
    assert parameters["config"] == config


def refusal(**changed: Any) -> str | None:
    """What the server answers to a run's form: it validates against the flow's JSON schema and nothing else."""
    try:
        validate({"config": DEMO | changed}, curriculum.parameters.model_dump(), raise_on_error=True)
    except ValidationError as error:
        return str(error)
    return None


def test_the_form_takes_a_whole_config() -> None:
    assert refusal() is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stages": 0}, "'config.stages'. Failure reason: 0 is less than the minimum of 1"),
        ({"stages": "two"}, "'config.stages'. Failure reason: 'two' is not of type 'integer'"),
        ({"steps": 3}, "Additional properties are not allowed ('steps' was unexpected)"),
        ({"name": "two words"}, "'config.name'. Failure reason: 'two words' does not match"),
        ({"root": "../runs"}, "'config.root'. Failure reason: '../runs' does not match"),
        ({"train": {"learning_rate": -1}}, "'config.train.learning_rate'. Failure reason: -1 is less than"),
        ({"train": {"sampler": {"type": "greso", "delta": -1}}}, "is not valid under any of the given schemas"),
    ],
    ids=["too small", "of another type", "unknown key", "pattern", "relative root", "nested", "of a choice"],
)
def test_an_impossible_value_is_refused_by_the_form(changed: dict[str, Any], said: str) -> None:
    refused = refusal(**changed)
    assert refused is not None and said in refused


def test_a_rule_between_keys_is_not_known_to_the_form_and_is_kept_by_the_run() -> None:
    cascade = {"blocks": 1, "trajectories": 2, "keep": 4.0}
    wrong = {
        "influence": {"type": "exact", "cascade": cascade},
        "selection": {"type": "influence", "alpha": 0.5},
    }
    assert refusal(**wrong) is None
    with pytest.raises(ParameterTypeError, match="which would be scored twice; lower keep, or leave the cascade out"):
        curriculum.validate_parameters({"config": DEMO | wrong})
