"""Pass rates of a policy on the held-out evaluation sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pipeline_lib.evaluation import evaluate_groups
from pipeline_lib.tracking.names import evaluation_metrics
from tasks.prompt_rows import set_members
from tasks.rollouts import RolloutStep, load_groups
from tasks.step import Done, Work, Workshop
from tasks.tracking import open_trackers


@dataclass(frozen=True)
class Evaluate(RolloutStep):
    """avg@k and pass@k of each evaluation set, drawn with the same seeds at every stage."""

    name: ClassVar[str] = "evaluate"
    split = "evaluation"
    phase = "evaluation"

    @property
    def samples(self) -> int:
        return self.run.evaluation.samples

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"pass_at": self.run.evaluation.pass_at}

    def work(self, at: Workshop) -> Work:
        shards = self.roll_out_all(at)
        groups = load_groups(self.root, Done(at.fingerprint, {"shards": shards}, cached=False))
        by_prompt = {group.prompt_id: group for group in groups}
        policy_id = self.policy.outputs["policy_id"]
        rows: list[dict[str, Any]] = []
        for name, prompt_ids in set_members(at.warehouse, self.ingest, self.split).items():
            metrics = evaluate_groups([by_prompt[i] for i in prompt_ids], self.run.evaluation.pass_at)
            rows += [
                {
                    "evaluation_set": name,
                    "metric": m.metric,
                    "k": m.k,
                    "policy_id": policy_id,
                    "value": m.value,
                    "standard_error": m.standard_error,
                    "n_prompts": m.n_prompts,
                }
                for m in metrics
            ]
        if self.stage > 0:  # no training, so no tracker's run, belongs to the initial policy
            with open_trackers(self.run, self.stage, self.policy.fingerprint, at) as trackers:
                trackers.log(self.policy.outputs["steps"], evaluation_metrics(rows))
        averages = {r["evaluation_set"]: r["value"] for r in rows if r["metric"] == "avg"}
        return Work({"shards": shards, "averages": averages}, {"evaluations": pa.Table.from_pylist(rows)})
