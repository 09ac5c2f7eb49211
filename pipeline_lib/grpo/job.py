"""What a training worker is given and what it hands back, as files in the stage's directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline_lib.atomic import write_text
from pipeline_lib.config import Generation, Train
from pipeline_lib.records import Prompt
from pipeline_lib.sampling import Observation


class TrainJob(BaseModel):
    """A GRPO stage: everything that the worker needs to know, paths absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_path: str
    policy_id: str
    policies_dir: str
    seed: int
    device: str
    dtype: str
    generation: Generation
    train: Train


class TrainResult(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_id: str
    policy_path: str
    n_parameters: int
    steps: int
    taken_step: int
    """Whose policy it is: the last step, or the best on the validation sets."""
    ended_early: str | None


def write_job(
    directory: Path,
    job: TrainJob,
    prompts: Sequence[Prompt],
    history: Sequence[Observation],
    validation: Sequence[Prompt] = (),
) -> None:
    """`validation` are the prompts that are looked at while training, if the job says so."""
    _write_prompts(directory / "prompts.jsonl", prompts)
    _write_prompts(directory / "validation.jsonl", validation)
    write_text(directory / "history.json", json.dumps(history))
    write_text(directory / "job.json", job.model_dump_json(indent=2))


def read_job(directory: Path) -> tuple[TrainJob, list[Prompt], list[Observation]]:
    job = TrainJob.model_validate_json((directory / "job.json").read_text())
    prompts = _read_prompts(directory / "prompts.jsonl")
    history = [Observation(*row) for row in json.loads((directory / "history.json").read_text())]
    return job, prompts, history


def read_validation(directory: Path) -> list[Prompt]:
    return _read_prompts(directory / "validation.jsonl")


def read_result(directory: Path) -> TrainResult | None:
    path = directory / "result.json"
    return TrainResult.model_validate_json(path.read_text()) if path.exists() else None


def _write_prompts(path: Path, prompts: Sequence[Prompt]) -> None:
    rows = [
        {
            "data_source": p.data_source,
            "messages": p.messages,
            "gold": p.gold,
            "verifier": p.verifier,
            "verifier_args": dict(p.verifier_args),
            "extra": dict(p.extra),
        }
        for p in prompts
    ]
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def _read_prompts(path: Path) -> list[Prompt]:
    with path.open() as lines:
        return [_prompt(json.loads(line)) for line in lines]


def _prompt(row: dict[str, Any]) -> Prompt:
    return Prompt(**{**row, "messages": tuple(row["messages"])})
