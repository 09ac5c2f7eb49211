"""The job templates of deploy/ give, through Prefect's own workers, jobs with a GPU, the root and shared memory."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from flows.dashboard.services import WORKER

DEPLOY = Path(__file__).parents[2] / "deploy"
VALUES = {"image": "registry.example/rlsift:1", "gpus": 2, "env": {"RLSIFT_ROOT": "/rlsift/runs"}}


def template(kind: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / kind / "base-job-template-gpu.json").read_text())
    return read


def configured(kind: Any, name: str, values: dict[str, Any]) -> Any:
    configuration = asyncio.run(kind.from_template_and_values(template(name), values, client=Mock()))
    flow_run = Mock(id=uuid4(), name="tiny · stage 1/2", flow_id=uuid4(), deployment_id=None, tags=[])
    flow_run.configure_mock(name="tiny-stage-1")
    flow_run.job_variables = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        configuration.prepare_for_flow_run(flow_run)
    return configuration


@pytest.mark.parametrize("kind", ["kubernetes", "docker"])
def test_every_placeholder_is_a_variable_and_every_variable_is_used(kind: str) -> None:
    read = template(kind)
    text = json.dumps(read["job_configuration"])
    used = {part.split("}}")[0].strip() for part in text.split("{{")[1:]}
    assert used == set(read["variables"]["properties"])


@pytest.mark.parametrize("kind", ["kubernetes", "docker"])
def test_a_flow_run_has_the_settings_that_the_dashboard_s_workers_have(kind: str) -> None:
    default = template(kind)["variables"]["properties"]["env"]["default"]
    assert default == {name: value for name, value in WORKER.items() if not name.startswith("PREFECT_SERVER")}


def test_the_kubernetes_job_has_gpus_the_root_and_shared_memory() -> None:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="prefect-kubernetes is not installed")
    from kubernetes_asyncio.client import ApiClient

    values = VALUES | {"root_claim": "shared", "root_path": "/data", "shm_size": "8Gi"}
    configuration = configured(worker.KubernetesWorkerJobConfiguration, "kubernetes", values)
    manifest = configuration.job_manifest
    client = ApiClient.__new__(ApiClient)  # its constructor wants a running event loop
    job = client.deserialize(Mock(data=json.dumps(manifest)), "V1Job")
    assert job.spec.backoff_limit == 0
    pod = job.spec.template.spec
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/gpu"] = str(limits["nvidia.com/gpu"])  # either is a quantity; the model's are text
    # Kubernetes knows no such fields of a pod: Prefect's worker insists on them, the cluster drops them.
    for name in ("parallelism", "completions"):
        assert manifest["spec"]["template"]["spec"].pop(name) == 1
    assert client.sanitize_for_serialization(job) == manifest, "every other field is one that Kubernetes knows"
    [container] = pod.containers
    assert container.image == VALUES["image"] and container.args
    assert container.resources.limits == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
    assert mounts == {"root": "/data", "shm": "/dev/shm"}
    volumes = {volume.name: volume for volume in pod.volumes}
    assert volumes["root"].persistent_volume_claim.claim_name == "shared"
    assert (volumes["shm"].empty_dir.medium, volumes["shm"].empty_dir.size_limit) == ("Memory", "8Gi")
    env = {entry.name: entry.value for entry in container.env}
    assert env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30" and env["RLSIFT_ROOT"] == "/rlsift/runs"
    assert "{{" not in json.dumps(manifest)


def test_the_docker_container_has_gpus_the_root_and_shared_memory() -> None:
    worker = pytest.importorskip("prefect_docker.worker", reason="prefect-docker is not installed")
    from docker.models.containers import _create_container_args

    values = VALUES | {"volumes": ["/data/rlsift:/data/rlsift"], "network_mode": "host"}
    configuration = configured(worker.DockerWorkerJobConfiguration, "docker", values)
    client = Mock()
    client.version.return_value = {"Version": "28.0.0"}
    settings = worker.DockerWorker._build_container_settings(Mock(), client, configuration)
    # docker-py's own reading of it: what would be sent to the daemon.
    sent = _create_container_args(settings | {"version": "1.44"})
    host = sent["host_config"]
    assert [(r["Count"], r["Driver"], r["Capabilities"]) for r in host["DeviceRequests"]] == [(2, "nvidia", [["gpu"]])]
    assert host["ShmSize"] == 16 * 2**30 and host["NetworkMode"] == "host"
    assert host["Binds"] == ["/data/rlsift:/data/rlsift"]
    assert sent["image"] == VALUES["image"]
    assert sent["environment"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert sent["environment"]["RLSIFT_ROOT"] == "/rlsift/runs"
