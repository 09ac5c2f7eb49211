"""Seeing a scoring job finished: by this process, by one a device, or by the workers of a task runner."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from pipeline_lib.config import RunConfig
from pipeline_lib.influence import make_scorer
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.shards import complete, n_scored, prepare, score_units, unfinished
from pipeline_lib.policy import resolve_device
from tasks.errors import StepFailed
from tasks.progress import Reporter
from tasks.runners import open_runner
from tasks.score_unit import ScoreUnit, prepare_validation, score_unit
from tasks.worker_process import log_tail, worker_process

POLL_SECONDS = 0.25


def score_all(job: ScoreJob, run: RunConfig, label: str, reporter: Reporter) -> None:
    """Score every unit of the job that is not finished; `influence.workers` None is one a GPU, or none on a CPU."""
    if complete(job):
        return
    missing = unfinished(job)
    if run.task_runner.type != "local":
        _score_by_runner(job, missing, run, label, reporter)
        return
    workers = run.influence.workers
    scorer = make_scorer(job)
    prepare(job, scorer, reporter.advance)
    n_workers = min(workers or _n_devices(job.device), len(missing))
    if n_workers <= 1:
        score_units(job, scorer, missing, reporter.advance)
        return
    del scorer  # its device is for the workers
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    portions = [missing[rank::n_workers] for rank in range(n_workers)]
    _score_by_workers(job, portions, label, reporter)


def _score_by_workers(job: ScoreJob, portions: Sequence[Sequence[str]], label: str, reporter: Reporter) -> None:
    job_path = job.write()
    logs = [job.path(f"worker-{rank}.log") for rank in range(len(portions))]
    waiting = {unit for portion in portions for unit in portion}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                worker_process(
                    "pipeline_lib.influence.worker",
                    [str(job_path), *portion],
                    log,
                    env=_worker_env(rank, len(portions), job.device),
                )
            )
            for rank, (portion, log) in enumerate(zip(portions, logs, strict=True))
        ]
        while waiting:
            codes = [worker.poll() for worker in workers]  # before the look at what they have left
            for unit in waiting - set(unfinished(job)):
                reporter.advance(n_scored(job, unit))
                waiting.remove(unit)
            for code, log in zip(codes, logs, strict=True):
                if code not in (None, 0):
                    raise StepFailed(_failure(label, code, log))
            time.sleep(POLL_SECONDS)


def _score_by_runner(job: ScoreJob, missing: Sequence[str], run: RunConfig, label: str, reporter: Reporter) -> None:
    whole = ScoreUnit(
        label=f"{label} · validation sets",
        unit="",
        root=Path(run.root),
        fingerprint=job.fingerprint,
        policy_path=job.policy_path,
        job_path=job.write(),
    )
    with open_runner(run.task_runner) as runner:
        for n_run in runner.map(prepare_validation, [whole]):
            reporter.advance(n_run)
        parts = [replace(whole, label=f"{label} · {unit}", unit=unit) for unit in missing]
        for unit in runner.map(score_unit, parts):
            reporter.advance(n_scored(job, unit))


def _failure(label: str, code: int, log: Path) -> str:
    return f"{label}: a scoring process ended with exit code {code}; its log is {log} and ends with:\n{log_tail(log)}"


def _n_devices(device: str) -> int:
    return torch.cuda.device_count() if resolve_device(device).type == "cuda" else 1


def _worker_env(rank: int, n_workers: int, device: str) -> dict[str, str]:
    """Each worker sees a GPU, or its share of the cores."""
    if resolve_device(device).type == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
        return {"CUDA_VISIBLE_DEVICES": devices[rank % len(devices)]}
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // n_workers))}
