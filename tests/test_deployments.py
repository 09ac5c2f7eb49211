"""Every deployment of prefect.yaml names a flow that loads, and a run's config survives its form."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

from flows.curriculum import curriculum
from pipeline_lib.config import RunConfig
from pipeline_lib.config_file import load_config

ROOT = Path(__file__).parent.parent
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["name"])
def test_the_entrypoint_loads(deployment: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert isinstance(flow, Flow)
    assert "config" in flow.parameters.properties


def test_the_config_comes_back_from_a_run_form_as_it_was() -> None:
    config = load_config(ROOT / "configs" / "demo.yaml")
    parameters = curriculum.validate_parameters({"config": config.model_dump(mode="json")})
    assert isinstance(parameters["config"], RunConfig)
    assert parameters["config"] == config
