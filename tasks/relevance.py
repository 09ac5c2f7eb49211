"""What the policy makes of each prompt by reading it, and how far that is of the kind that a validation set asks.

Once a run, by its initial policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tasks.policy import policy_directory
from tasks.prompt_rows import load_prompts, load_sets
from tasks.step import Done, Step, Work, Workshop


@dataclass(frozen=True)
class Relate(Step):
    name: ClassVar[str] = "relevance"
    contract: ClassVar[int] = 2  # states are kept

    ingest: Done
    policy: Done

    def settings(self) -> dict[str, Any]:
        return {"dtype": self.run.dtype}

    def inputs(self) -> dict[str, str]:
        return {"ingest": self.ingest.fingerprint, "policy": self.policy.outputs["policy_id"]}

    def work(self, at: Workshop) -> Work:
        import torch

        from pipeline_lib.policy import load_policy, resolve_device
        from pipeline_lib.relevance import relevances

        pool = load_prompts(at.warehouse, self.ingest, "train")
        validation = load_sets(at.warehouse, self.ingest, "validation")
        at.reporter.start(self.label, len(pool) + sum(map(len, validation.values())), "prompts")
        policy = load_policy(
            policy_directory(self.root, self.policy.outputs),
            device=resolve_device(self.run.device),
            dtype=getattr(torch, self.run.dtype),
        )
        pieces = relevances(
            policy, pool, validation, tokens_per_batch=self.run.scoring_tokens, progress=at.reporter.advance
        )
        compared, states = map(pa.concat_tables, zip(*pieces, strict=True))
        return Work({"n_prompts": len(pool)}, {"relevances": compared, "prompt_states": states})
