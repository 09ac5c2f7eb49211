"""Ingest: data sets become prompts in the warehouse; what was left out is listed with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from pipeline_lib.config import FileSource, PromptSource
from pipeline_lib.policy import encode_messages
from pipeline_lib.prompts.ingest import IngestResult, Reject, ingest
from pipeline_lib.prompts.sources import source_identity
from pipeline_lib.records import Prompt
from tasks.step import Done, Step, StepFailed, Work, Workshop, stamped
from warehouse import Warehouse

Split = Literal["train", "validation", "evaluation"]
SetKey = tuple[str, str]
"""(split, set name)"""

MEMBERS = """
    SELECT set_name, prompt_id FROM prompt_sources
    WHERE fingerprint = $1 AND split = $2
    GROUP BY set_name, prompt_id ORDER BY set_name, min((source, row_index))
"""
PROMPTS = """
    WITH members AS (
        SELECT prompt_id, min((set_name, source, row_index)) AS place FROM prompt_sources
        WHERE fingerprint = $1 AND split = $2 GROUP BY prompt_id
    )
    SELECT prompts.* FROM members JOIN prompts USING (prompt_id) ORDER BY place
"""

PROMPTS_SCHEMA = pa.schema(
    [(n, pa.string()) for n in ("prompt_id", "data_source", "messages", "gold", "verifier")]
    + [("verifier_args", pa.string()), ("extra", pa.string())]
)
SOURCES_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("set_name", pa.string()),
        ("source", pa.string()),
        ("row_index", pa.int64()),
        ("prompt_id", pa.string()),
    ]
)
REJECTS_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("set_name", pa.string()),
        ("source", pa.string()),
        ("row_index", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


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


def ingest_file(warehouse: Warehouse, source: FileSource) -> tuple[IngestResult, bool]:
    """Read one data set into the warehouse, outside any run; also says whether it was there already."""
    identity = json.dumps(["ingest_file", source_identity(source)])
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:16]
    result = ingest([source], set_name="file")
    known = warehouse.query("SELECT 1 FROM prompt_sources WHERE fingerprint = $1 LIMIT 1", [fingerprint])
    warehouse.write(stamped(ingest_tables({("file", "file"): result}), fingerprint))
    warehouse.publish()
    return result, known.num_rows > 0


def ingest_tables(results: dict[SetKey, IngestResult]) -> dict[str, pa.Table]:
    """Rows of prompts, prompt_sources and prompt_rejects."""
    prompts = {prompt_id: p for result in results.values() for prompt_id, p in result.prompts.items()}

    def labelled(rows: Iterable[tuple[SetKey, Any]]) -> Iterator[dict[str, Any]]:
        return ({"split": split, "set_name": name} | asdict(row) for (split, name), row in rows)

    sources = labelled((key, row) for key, result in results.items() for row in result.rows)
    rejects = labelled((key, row) for key, result in results.items() for row in result.rejects)
    return {
        "prompts": pa.Table.from_pylist([_prompt_row(i, p) for i, p in prompts.items()], PROMPTS_SCHEMA),
        "prompt_sources": pa.Table.from_pylist(list(sources), SOURCES_SCHEMA),
        "prompt_rejects": pa.Table.from_pylist(list(rejects), REJECTS_SCHEMA),
    }


def load_prompts(warehouse: Warehouse, ingested: Done, split: Split) -> list[Prompt]:
    """All prompts of a split, each once, in the order of their first rows."""
    rows = warehouse.query(PROMPTS, [ingested.fingerprint, split]).to_pylist()
    return [
        Prompt(
            data_source=row["data_source"],
            messages=tuple(json.loads(row["messages"])),
            gold=row["gold"],
            verifier=row["verifier"],
            verifier_args=json.loads(row["verifier_args"]),
            extra=json.loads(row["extra"]),
        )
        for row in rows
    ]


def set_members(warehouse: Warehouse, ingested: Done, split: Split) -> dict[str, list[str]]:
    """Prompt ids of each set of a split, in the order of their first rows."""
    members: dict[str, list[str]] = {}
    for row in warehouse.query(MEMBERS, [ingested.fingerprint, split]).to_pylist():
        members.setdefault(row["set_name"], []).append(row["prompt_id"])
    return members


def _identities(sources: Sequence[PromptSource]) -> list[str]:
    return [source_identity(source) for source in sources]


def _counts(result: IngestResult) -> dict[str, Any]:
    return {
        "rows": result.n_rows,
        "prompts": result.n_prompts,
        "duplicates": result.n_duplicates,
        "rejects": result.reject_counts,
    }


def _prompt_row(prompt_id: str, prompt: Prompt) -> dict[str, str]:
    return {
        "prompt_id": prompt_id,
        "data_source": prompt.data_source,
        "messages": json.dumps(prompt.messages, ensure_ascii=False),
        "gold": prompt.gold,
        "verifier": prompt.verifier,
        "verifier_args": json.dumps(dict(prompt.verifier_args), ensure_ascii=False),
        "extra": json.dumps(dict(prompt.extra), ensure_ascii=False),
    }


def _without_overlong(
    result: IngestResult, name: str, tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> IngestResult:
    lengths = {i: len(encode_messages(tokenizer, p.messages)) for i, p in result.prompts.items()}
    overlong = {i: n for i, n in lengths.items() if n > max_tokens}
    if len(overlong) == len(lengths):
        raise StepFailed(
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
