"""Ingest: data sets become prompts in the warehouse; what was left out is listed with its reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_lib.config import PromptSource
from pipeline_lib.prompts.ingest import IngestResult, Reject, ingest
from pipeline_lib.prompts.sources import source_identity
from tasks.prompt_rows import SetKey, ingest_tables
from tasks.step import Done, Step, Work, Workshop

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class IngestPrompts(Step):
    """The pool, the validation sets and the evaluation sets. Prompts of the latter two leave the pool."""

    name: ClassVar[str] = "ingest"

    policy: Done

    def settings(self) -> dict[str, Any]:
        prompts = self.run.prompts
        return {
            "train": _identities(prompts.train),
            "validation": {name: _identities(sources) for name, sources in prompts.validation.items()},
            "evaluation": {name: _identities(sources) for name, sources in prompts.evaluation.items()},
            "max_prompt_tokens": self.run.generation.max_prompt_tokens,
        }

    def inputs(self) -> dict[str, str]:
        return {"policy": self.policy.outputs["policy_id"]}  # its tokenizer says which prompts are too long

    def work(self, at: Workshop) -> Work:
        from transformers import AutoTokenizer

        prompts = self.run.prompts
        tokenizer = AutoTokenizer.from_pretrained(self.policy.outputs["path"])
        at.reporter.start(self.label, None, "")
        results: dict[SetKey, IngestResult] = {}
        for split, sets in (("validation", prompts.validation), ("evaluation", prompts.evaluation)):
            for name, sources in sets.items():
                results[split, name] = self._read(sources, name, tokenizer)
        held_out = {prompt_id for result in results.values() for prompt_id in result.prompts}
        results["train", "train"] = self._read(prompts.train, "train", tokenizer, exclude=held_out)
        counts = {f"{split}/{name}": _counts(result) for (split, name), result in results.items()}
        return Work({"sets": counts}, ingest_tables(results))

    def _read(
        self,
        sources: Sequence[PromptSource],
        name: str,
        tokenizer: PreTrainedTokenizerBase,
        exclude: Collection[str] = (),
    ) -> IngestResult:
        result = ingest(sources, set_name=name, exclude=exclude)
        return _without_overlong(result, name, tokenizer, self.run.generation.max_prompt_tokens)


def _identities(sources: Sequence[PromptSource]) -> list[str]:
    return [source_identity(source) for source in sources]


def _counts(result: IngestResult) -> dict[str, Any]:
    return {
        "rows": result.n_rows,
        "prompts": result.n_prompts,
        "duplicates": result.n_duplicates,
        "rejects": result.reject_counts,
    }


def _without_overlong(
    result: IngestResult, name: str, tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> IngestResult:
    from pipeline_lib.policy import encode_messages

    lengths = {i: len(encode_messages(tokenizer, p.messages)) for i, p in result.prompts.items()}
    overlong = {i: n for i, n in lengths.items() if n > max_tokens}
    if len(overlong) == len(lengths):
        raise ValueError(
            f"set {name!r}: every one of its {len(lengths)} prompts is longer than max_prompt_tokens="
            f"{max_tokens} (the shortest has {min(overlong.values())}); raise generation.max_prompt_tokens"
        )
    rejects = [
        Reject(
            row.source,
            row.row_index,
            "prompt_too_long",
            f"prompt {row.prompt_id} has {overlong[row.prompt_id]} tokens, the limit is {max_tokens}",
        )
        for row in result.rows
        if row.prompt_id in overlong
    ]
    return replace(
        result,
        prompts={i: p for i, p in result.prompts.items() if i not in overlong},
        rows=[row for row in result.rows if row.prompt_id not in overlong],
        rejects=result.rejects + rejects,
    )
