"""A small step whose work is a file operation or two, and the run that it belongs to."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.config import ChainSource, Prompts, RunConfig
from tasks.step import Step, Work, Workshop


def run_config(root: Path, **settings: Any) -> RunConfig:
    chains = [ChainSource(kinds=["plus"], lengths=[1], count=2)]
    prompts = Prompts(train=chains, validation={"v": chains}, evaluation={"e": chains})
    return RunConfig(root=str(root), prompts=prompts, **({"name": "run", "stages": 2} | settings))


def shard_row(index: int) -> pa.Table:
    row = {"shard_index": index, "path": f"shard-{index}", "n_rows": 1, "n_bytes": 1, "sha256": "0"}
    return pa.Table.from_pylist([row])


@dataclass(frozen=True)
class FileStep(Step):
    """Writes `output`, and a line for each attempt into `output`.log."""

    name: ClassVar[str] = "file_step"

    output: Path
    setting: int = 0
    read: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def settings(self) -> dict[str, Any]:
        return {"setting": self.setting}

    def inputs(self) -> dict[str, str]:
        return dict(self.read)

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        return [] if Path(outputs["path"]).exists() else [outputs["path"]]

    def work(self, at: Workshop) -> Work:
        at.reporter.start(self.label, 1, "files")
        with self.output.with_suffix(".log").open("a") as log:
            log.write(json.dumps({"seed": self.seed("part", 1)}) + "\n")
        time.sleep(self.seconds)
        self.output.write_text("whole")
        at.reporter.advance()
        return Work({"path": str(self.output)}, {"shards": shard_row(0)})


def attempts_of(step: FileStep) -> list[dict[str, Any]]:
    log = step.output.with_suffix(".log")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
