"""Ingest: data sets become prompts in the warehouse; what was left out is listed with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline_lib.config import PromptSource
from pipeline_lib.prompts.arrow import prompt_of
from pipeline_lib.prompts.contamination import HeldOut
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.prompt_set import PromptSet
from pipeline_lib.prompts.sources import source_identity
from tasks.locks import one_ingest_at_a_time
from tasks.policy import policy_directory
from tasks.prompt_rows import graded_by, set_tables
from tasks.step import Done, Step, Work, Workshop
from warehouse import Warehouse

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class IngestPrompts(Step):
    """The pool, the validation sets and the evaluation sets. What the latter two ask leaves the pool, or is counted."""

    name: ClassVar[str] = "ingest"
    contract: ClassVar[int] = 4  # golds are read otherwise, an answer is no part of a prompt, outputs say what grades

    policy: Done

    def settings(self) -> dict[str, Any]:
        prompts = self.run.prompts
        return {
            "train": _identities(prompts.train),
            "validation": {name: _identities(sources) for name, sources in prompts.validation.items()},
            "evaluation": {name: _identities(sources) for name, sources in prompts.evaluation.items()},
            "contamination": prompts.contamination,
            "max_prompt_tokens": self.run.generation.max_prompt_tokens,
        }

    def inputs(self) -> dict[str, str]:
        return {"policy": self.policy.outputs["policy_id"]}  # its tokenizer says which prompts are too long

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        """Prompts that another ingest has given another gold since; their rows are the only output."""
        found, ingested = graded_by(Warehouse(self.root), self.fingerprint), outputs["graded_by"]
        changed = [split for split in (found | ingested) if found.get(split) != ingested.get(split)]
        return [f"record of what grades the {split} prompts" for split in changed]

    def work(self, at: Workshop) -> Work:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(policy_directory(self.root, self.policy.outputs))
        at.reporter.start(self.label, None, "")
        with one_ingest_at_a_time(self.root):
            counts = self._ingest_all(at, tokenizer)
            return Work({"sets": counts, "graded_by": graded_by(at.warehouse, at.fingerprint)})

    def _ingest_all(self, at: Workshop, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Write all sets; what became of the rows of each."""
        prompts = self.run.prompts
        held_out = HeldOut()
        graders: dict[str, tuple[str, Any]] = {}
        counts: dict[str, Any] = {}
        sets = [("validation", name, sources) for name, sources in prompts.validation.items()]
        sets += [("evaluation", name, sources) for name, sources in prompts.evaluation.items()]
        for split, name, sources in [*sets, ("train", "train", prompts.train)]:
            pool = split == "train"
            found = ingest(
                sources,
                set_name=name,
                held_out=held_out if pool else HeldOut(),
                drop_held_out=prompts.contamination == "drop",
                say=at.reporter.say,
                scratch=self.root,
            )
            self._leave_out_overlong(found, name, tokenizer)
            if not pool:
                held_out.add(f"{split}/{name}", (question for _, question in found.questions()))
            _refuse_two_graders(found, name, graders, remember=not pool)
            for tables in set_tables((split, name), found):
                at.record(tables)
            counts[f"{split}/{name}"] = _counts(found)
            self._say_contamination(at, found)
            if found.n_asked_again:
                at.reporter.say(
                    f"{name}: {found.n_asked_again:,} prompts ask what another one asks, but for white space, system "
                    "prompt or data source; they are kept. Make their texts alike where they should count once."
                )
        return counts

    def _leave_out_overlong(self, found: PromptSet, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
        from pipeline_lib.policy import encode_messages

        limit = self.run.generation.max_prompt_tokens
        shortest = None
        overlong: dict[int, str] = {}
        for batch in found.prompt_batches():
            for row in batch.to_pylist():
                n = len(encode_messages(tokenizer, prompt_of(row).messages))
                shortest = n if shortest is None else min(shortest, n)
                if n > limit:
                    detail = f"prompt {row['prompt_id']} has {n} tokens, the limit is {limit}"
                    overlong[int(row["prompt_id"], 16)] = detail
        if len(overlong) == found.n_prompts:
            raise ValueError(
                f"set {name!r}: every one of its {len(overlong)} prompts is longer than max_prompt_tokens="
                f"{limit} (the shortest has {shortest}); raise generation.max_prompt_tokens"
            )
        found.leave_out("prompt_too_long", overlong)

    def _say_contamination(self, at: Workshop, found: PromptSet) -> None:
        for held_out, n_prompts in found.contamination.items():
            done = "left out" if self.run.prompts.contamination == "drop" else "kept, as prompts.contamination says"
            at.reporter.say(f"{n_prompts:,} prompts of the pool also stand in {held_out}: {done}.")


def _refuse_two_graders(found: PromptSet, name: str, graders: dict[str, tuple[str, Any]], *, remember: bool) -> None:
    """A prompt is rolled out and graded once for all sets of a run. `graders` is what those before have said."""
    for batch in found.prompt_batches():
        if not remember:
            batch = batch.filter(pc.is_in(batch["prompt_id"], pa.array(graders, pa.string())))
        for row in batch.to_pylist():
            own = (row["gold"], row["verifier"], row["verifier_args"])
            other_set, other = graders.setdefault(row["prompt_id"], (name, own))
            if own != other:
                raise ValueError(
                    f"prompt {row['prompt_id']} is graded by {own} in set {name!r}, by {other} in {other_set!r} (gold, "
                    "verifier, its arguments); let one data set say what is right, leave it out of the other"
                )


def _identities(sources: Sequence[PromptSource]) -> list[str]:
    return [source_identity(source) for source in sources]


def _counts(found: PromptSet) -> dict[str, Any]:
    return {
        "rows": found.n_rows,
        "prompts": found.n_prompts,
        "duplicates": found.n_duplicates,
        "asked_again": found.n_asked_again,
        "rejects": found.reject_counts,
        "contamination": found.contamination,
    }
