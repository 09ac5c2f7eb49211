"""Prompts as Arrow rows: the columns of the warehouse's table, nested values as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any

import pyarrow as pa

from pipeline_lib.records import Message, Prompt

PROMPTS_SCHEMA = pa.schema(
    [(n, pa.string()) for n in ("prompt_id", "data_source", "messages", "gold", "verifier", "verifier_args", "extra")]
)

# json.dumps would make an encoder of its own for each value.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def prompts_batch(prompt_ids: pa.StringArray, prompts: Sequence[Prompt]) -> pa.RecordBatch:
    """One row a prompt, in the order given."""
    columns = [
        prompt_ids,
        [p.data_source for p in prompts],
        [_messages_json(p.messages) for p in prompts],
        [p.gold for p in prompts],
        [p.verifier for p in prompts],
        [_json(p.verifier_args) for p in prompts],
        [_json(p.extra) for p in prompts],
    ]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=PROMPTS_SCHEMA)


def prompt_of(row: Mapping[str, str]) -> Prompt:
    """The prompt of a row."""
    return Prompt(
        data_source=row["data_source"],
        messages=tuple(json.loads(row["messages"])),
        gold=row["gold"],
        verifier=row["verifier"],
        verifier_args=json.loads(row["verifier_args"]),
        extra=json.loads(row["extra"]),
    )


def _messages_json(messages: Iterable[Message]) -> str:
    parts = [f'{{"role": {quoted(m["role"])}, "content": {quoted(m["content"])}}}' for m in messages]
    return f"[{', '.join(parts)}]"


def _json(value: Mapping[str, Any]) -> str:
    return _encode(dict(value)) if value else "{}"
