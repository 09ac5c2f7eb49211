"""What a process must have to work on shards of others: told before the work, in words."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterable
from pathlib import Path

from pipeline_lib.records import Prompt
from tasks.locks import lock_path


def check_sees(root: Path, fingerprint: str, policy_path: str) -> None:
    """Raises ValueError where the run's root or the policy is not here, or another root is mounted in its place."""
    for path, what in ((lock_path(root, fingerprint), f"root={root}"), (Path(policy_path), f"policy {policy_path}")):
        if not path.exists():
            raise ValueError(
                f"{what}: the worker on {socket.gethostname()} finds no {path}; every worker of task_runner must see "
                "the run's root and policy at the same paths: mount the storage that holds them there, or use "
                "task_runner: {type: local}"
            )


def check_processes(prompts: Iterable[Prompt]) -> None:
    """Raises ValueError where a verifier needs processes and this one may have none."""
    from pipeline_lib.rewards import get_verifier

    isolated = sorted({p.verifier for p in prompts if get_verifier(p.verifier).isolated})
    if multiprocessing.current_process().daemon and isolated:
        raise ValueError(
            f"verifier {isolated[0]}: it judges in processes of its own, which a daemonic Dask worker may not have; "
            "start the workers with DASK_DISTRIBUTED__WORKER__DAEMON=false"
        )
