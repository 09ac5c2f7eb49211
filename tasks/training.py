"""One GRPO stage in a process of its own; its records enter the warehouse as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.grpo.checkpoint_files import torn_checkpoints
from pipeline_lib.grpo.worker import ERROR
from pipeline_lib.tracking import Trackers
from pipeline_lib.tracking.names import metrics_of
from tasks.errors import StepFailed
from tasks.live_files import training_directory
from tasks.log_stream import LogStream
from tasks.policy import path_in_root, policy_directory, policy_row
from tasks.prompt_rows import load_prompts
from tasks.step import Done, Step, Work, Workshop, fingerprints
from tasks.tracking import open_trackers
from tasks.worker_process import log_tail, worker_process

POLL_SECONDS = 0.25

HOW_NOT_WHAT: dict[str, Any] = {"checkpoint_every": True, "keep_last": True, "backend": {"processes": True}}
"""Keys of `train` that may change between the attempts at one stage."""

SELECTED = "SELECT prompt_id FROM selections WHERE fingerprint = $1 AND selected"
HISTORY = """
    SELECT prompt_id, n, n_correct, has_signal FROM rollout_stats
    WHERE list_contains($fingerprints, fingerprint)
      AND prompt_id IN (SELECT prompt_id FROM selections WHERE fingerprint = $selection AND selected)
    ORDER BY list_position($fingerprints, fingerprint), step, prompt_id
"""


@dataclass(frozen=True)
class TrainStage(Step):
    name: ClassVar[str] = "train"
    contract: ClassVar[int] = 3  # samplers go by the rewards: a group with partial credit that differs is mixed

    ingest: Done
    policy: Done
    selection: Done
    history: tuple[Done, ...]
    """Every earlier step that rolled the pool out, oldest first: the sampler's prior."""

    def settings(self) -> dict[str, Any]:
        return {
            "train": self.run.train.model_dump(mode="json", exclude=HOW_NOT_WHAT),
            "generation": self.run.generation.what_is_sampled(),
            "dtype": self.run.dtype,
            "seed": self.run.seed,
            "stage": self.stage,
        }

    def inputs(self) -> dict[str, str]:
        inputs = {
            "ingest": self.ingest.fingerprint,
            "policy": self.policy.outputs["policy_id"],
            "selection": self.selection.fingerprint,
        }
        return inputs | fingerprints("history", self.history)

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        return [] if policy_directory(self.root, outputs).exists() else [outputs["path"]]

    def left_over(self) -> str:
        steps = [int(path.name.removeprefix("step-")) for path in (self._directory / "checkpoints").glob("step-*")]
        return f"the checkpoint of step {max(steps)}" if steps else ""

    @property
    def _directory(self) -> Path:
        return training_directory(self.root, self.run.name, self.stage, self.fingerprint)

    def work(self, at: Workshop) -> Work:
        from pipeline_lib.grpo.job import read_result
        from pipeline_lib.grpo.record_files import finished_steps

        directory = self._directory
        directory.mkdir(parents=True, exist_ok=True)
        result = read_result(directory)
        with open_trackers(self.run, self.stage, at.fingerprint, at) as trackers:
            if result is None or self.lost_outputs({"path": result.policy_path}):
                self._prepare(directory, at)
                self._train(directory, at, trackers)
                result = read_result(directory)
                assert result is not None
            # Steps redone after a resume have replaced records that were carried before, perhaps by fewer.
            self._carry_records(directory, at, trackers, finished_steps(directory / "records"), instead=True)
        if result.ended_early:
            at.reporter.say(f"{self.label}: {result.ended_early}.")
        if result.taken_step != result.steps:
            at.reporter.say(f"{self.label}: hands on the policy of step {result.taken_step}, the best in validation.")
        outputs: dict[str, Any] = {
            "policy_id": result.policy_id,
            "path": path_in_root(self.root, policy_directory(self.root, {"path": result.policy_path})),
            "steps": result.steps,
            "taken_step": result.taken_step,
            "ended_early": result.ended_early,
            "directory": str(directory.relative_to(self.root)),
        }
        parent = self.policy.outputs["policy_id"]
        if result.policy_id == parent:  # nothing was learned: no policy may be its own parent
            return Work(outputs)
        row = policy_row(result.policy_id, outputs["path"], parent, result.n_parameters)
        return Work(outputs, {"policies": row})

    def _prepare(self, directory: Path, at: Workshop) -> None:
        from pipeline_lib.grpo.job import TrainJob, write_job
        from pipeline_lib.sampling import Observation

        selected = at.warehouse.query(SELECTED, [self.selection.fingerprint])["prompt_id"].to_pylist()
        chosen = set(selected)
        prompts = [p for p in load_prompts(at.warehouse, self.ingest, "train") if p.prompt_id in chosen]
        fingerprints = [done.fingerprint for done in self.history]
        history = at.warehouse.query(HISTORY, {"fingerprints": fingerprints, "selection": self.selection.fingerprint})
        job = TrainJob(
            policy_path=str(policy_directory(self.root, self.policy.outputs)),
            policy_id=self.policy.outputs["policy_id"],
            policies_dir=str(self.root / "policies"),
            seed=self.seed(self.stage),
            device=self.run.device,
            dtype=self.run.dtype,
            generation=self.run.generation,
            train=self.run.train,
        )
        validation = load_prompts(at.warehouse, self.ingest, "validation") if self.run.train.validation else []
        write_job(directory, job, prompts, [Observation(**row) for row in history.to_pylist()], validation)

    def _train(self, directory: Path, at: Workshop, trackers: Trackers) -> None:
        """Launch the worker, carry its records over as they come, and see it end."""
        from pipeline_lib.grpo.record_files import finished_steps

        for torn in torn_checkpoints(directory / "checkpoints"):
            at.reporter.say(
                f"{self.label}: checkpoint {torn.name} is torn, its files are not those that were saved; "
                "training goes on from the one before it."
            )
        log_path = directory / "worker.log"
        finished = finished_steps(directory / "records")
        carried = max(finished, default=0)
        at.reporter.start(self.label, self.run.train.steps, "steps", done=carried)
        if finished:  # an earlier attempt may have been killed before it carried its last ones
            self._carry_records(directory, at, trackers, finished)
        output = LogStream(log_path)
        with worker_process("pipeline_lib.grpo.worker", [str(directory)], log_path) as worker:
            running = True
            while running:
                running = worker.poll() is None
                output.look(last=not running)
                new = [step for step in finished_steps(directory / "records") if step > carried]
                if new:
                    last = self._carry_records(directory, at, trackers, new)
                    at.reporter.advance(len(new), **_facts(last))
                    carried = new[-1]
                elif running:
                    time.sleep(POLL_SECONDS)
        if worker.returncode != 0:
            error = directory / ERROR
            told = error.read_text() if error.exists() else ""
            ending = told or f"it ends with:\n{log_tail(log_path)}"
            raise StepFailed(
                f"{self.label}: the training process ended with exit code {worker.returncode} after step {carried}; "
                f"its log is {log_path}; {ending}"
            )

    @staticmethod
    def _carry_records(
        directory: Path, at: Workshop, trackers: Trackers, steps: list[int], *, instead: bool = False
    ) -> dict[str, Any]:
        """Bring the records of `steps` to warehouse and trackers; returns the last one's row of train_steps."""
        from pipeline_lib.grpo.record_files import read_step_records

        by_step = [read_step_records(directory / "records", step) for step in steps]
        tables = {
            name: pa.concat_tables([records[name] for records in by_step], promote_options="permissive")
            for name in by_step[0]
        }
        at.record(tables, instead=instead)
        rows: list[dict[str, Any]] = tables["train_steps"].to_pylist()
        trackers.log_steps([(row["step"], metrics_of(row)) for row in rows])
        return rows[-1]


def _facts(row: dict[str, Any]) -> dict[str, str | float]:
    known = {"reward": row["reward"], "zero_variance": row["frac_reward_zero_std"]}
    return {name: value for name, value in known.items() if value is not None} | {"skipped": row["prompts_skipped"]}
