"""Work pools, and the deployments of prefect.yaml on them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from prefect import __version__
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

import flows
from flows.dashboard.services import POOLS
from pipeline_lib.atomic import write_text
from pipeline_lib.config import ConfigError, RunConfig
from tasks.errors import StepFailed


def find_deployments() -> Path:
    """prefect.yaml beside the package `flows`. Raises ConfigError where an installation has left it out."""
    assert flows.__file__ is not None
    path = Path(flows.__file__).parent.parent / "prefect.yaml"
    if not path.is_file():
        raise ConfigError(
            f"{path}: not there, so that nothing can be deployed; it lies at the top of rlsift's repository: install "
            "from a checkout (pip install --editable DIRECTORY), or copy it to this place"
        )
    return path


def register_pools(client: SyncPrefectClient) -> None:
    """Make the pools that are missing; limits that were changed on a pool's page stay."""
    for name, limit in POOLS.items():
        pool = WorkPoolCreate(
            name=name,
            type=ProcessWorker.type,
            base_job_template=ProcessWorker.get_default_base_job_template(),
            concurrency_limit=limit,
        )
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            continue


def deploy(deployments: Path, home: Path, settings: Mapping[str, str]) -> bool:
    """Register the deployments, unless this server has them as they are now; True where it was done.

    Prefect puts every schedule back to what the file says, also one that was changed or switched on by hand; so a
    dashboard that is only started again must not. Raises StepFailed with what Prefect said.
    """
    marker = home / "deployed"
    now = _content(deployments)
    if marker.exists() and marker.read_text() == now:
        return False
    answer = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", deployments.name],
        cwd=deployments.parent,
        env=os.environ | dict(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise StepFailed(f"{deployments} could not be deployed; Prefect said:\n{answer.stdout}{answer.stderr}")
    write_text(marker, now)
    return True


def _content(deployments: Path) -> str:
    """A hash of all that a deployment is made of."""
    parts = [str(deployments), deployments.read_text(), RunConfig.model_json_schema(), __version__]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
