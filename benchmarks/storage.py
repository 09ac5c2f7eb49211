"""Bytes and seconds of a rollout shard in Parquet, by encoding, beside an entropy coder over its tokens.

    PYTHONPATH=. .venv/bin/python benchmarks/storage.py make SMOLLM2 FILE     # real rollouts, some minutes
    PYTHONPATH=. .venv/bin/python benchmarks/storage.py table FILE...         # and results/storage.json

SMOLLM2 is a policy's directory, as for engine.py; any shard of a run's lake may be a FILE as well. Every row of the
table was read back and is equal to what was written, except where it says that it is not.
"""

from __future__ import annotations

import argparse
import heapq
import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from engine import smollm2_case
from machine import processor
from rich.console import Console
from rich.table import Table as Shown

from pipeline_lib.parquet import write_parquet
from pipeline_lib.policy import load_policy
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import TransformersEngine, groups_from_table, groups_to_table, roll_out

RESULTS = Path(__file__).parent / "results/storage.json"
LOGPROBS, IDS, PROMPT = "behaviour_logprobs", "completion_token_ids", "prompt_token_ids"
LISTS = [f"{name}.list.element" for name in (LOGPROBS, IDS, PROMPT)]
OTHERS = ["prompt_id", "sample_index", "finish_reason", "text", "reward", "verifier_status"]


@dataclass(frozen=True)
class Way:
    """`options` are those of pyarrow's writer; `shape` and `back` turn the rows into what is written and back."""

    options: dict[str, Any]
    shape: Callable[[pa.Table], pa.Table] = lambda table: table
    back: Callable[[pa.Table], pa.Table] = lambda table: table
    exact: bool = True


def zstd(level: int, **options: Any) -> dict[str, Any]:
    return {"compression": "zstd", "compression_level": level, **options}


def split(*columns: str, level: int) -> dict[str, Any]:
    """Bytes of equal significance beside each other in `columns`; dictionaries in all that hold no list."""
    return zstd(level, use_dictionary=OTHERS, use_byte_stream_split=[f"{name}.list.element" for name in columns])


def replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def prompts_once(table: pa.Table) -> pa.Table:
    """No prompt where the row before has the same."""
    prompts = table[PROMPT].to_pylist()
    once = [p if row == 0 or p != prompts[row - 1] else None for row, p in enumerate(prompts)]
    return replaced(table, PROMPT, pa.array(once, pa.list_(pa.int32())))


def prompts_again(table: pa.Table) -> pa.Table:
    prompts: list[list[int]] = []
    for prompt in table[PROMPT].to_pylist():
        prompts.append(prompts[-1] if prompt is None else prompt)
    return replaced(table, PROMPT, pa.array(prompts, pa.list_(pa.int32())))


def as_two_bytes(table: pa.Table) -> pa.Table:
    """Completions as strings of bytes, two a token: Parquet itself knows no 16-bit number."""
    packed = [np.asarray(ids, "<u2").tobytes() for ids in table[IDS].to_pylist()]
    return replaced(table, IDS, pa.array(packed, pa.binary()))


def from_two_bytes(table: pa.Table) -> pa.Table:
    ids = [np.frombuffer(packed, "<u2").astype(np.int32) for packed in table[IDS].to_pylist()]
    return replaced(table, IDS, pa.array(ids, pa.list_(pa.int32())))


def half_logprobs(table: pa.Table) -> pa.Table:
    values = [np.asarray(row, np.float16) for row in table[LOGPROBS].to_pylist()]
    return replaced(table, LOGPROBS, pa.array(values, pa.list_(pa.float16())))


def full_logprobs(table: pa.Table) -> pa.Table:
    return replaced(table, LOGPROBS, table[LOGPROBS].cast(pa.list_(pa.float32())))


def delta(level: int) -> dict[str, Any]:
    ids = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in (IDS, PROMPT)}
    return zstd(level, use_dictionary=OTHERS, column_encoding=ids)


WAYS = {
    "raw: no compression, no dictionaries": Way({"compression": "none", "use_dictionary": False}),
    **{f"zstd {level}, dictionaries": Way(zstd(level)) for level in (1, 3, 9, 19)},
    **{f"zstd {level}, no dictionaries": Way(zstd(level, use_dictionary=False)) for level in (1, 3, 9, 19)},
    "zstd 1, dictionaries where there is no list": Way(zstd(1, use_dictionary=OTHERS)),
    **{f"zstd {level}, log-probs split": Way(split(LOGPROBS, level=level)) for level in (1, 3, 9, 19)},
    "zstd 3, log-probs and ids split": Way(split(LOGPROBS, IDS, PROMPT, level=3)),
    "zstd 3, ids as packed differences": Way(delta(3)),
    "zstd 3, log-probs split, ids as 2 bytes": Way(split(LOGPROBS, level=3), as_two_bytes, from_two_bytes),
    "zstd 3, log-probs split, prompts once": Way(split(LOGPROBS, level=3), prompts_once, prompts_again),
    "zstd 9, log-probs split, prompts once": Way(split(LOGPROBS, level=9), prompts_once, prompts_again),
    "inexact: zstd 3, log-probs as float16": Way(zstd(3), half_logprobs, full_logprobs, exact=False),
}


def best_of(times: int, work: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(times):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def written(table: pa.Table, way: Way) -> bytes:
    file = io.BytesIO()
    pq.write_table(way.shape(table), file, **way.options)
    return file.getvalue()


def read(data: bytes, way: Way) -> pa.Table:
    return way.back(pq.ParquetFile(io.BytesIO(data)).read())


def measure_way(table: pa.Table, way: Way, times: int) -> dict[str, float]:
    data = written(table, way)
    assert read(data, way).cast(table.schema).equals(table) == way.exact
    return {
        "bytes": len(data),
        "write ms": 1000 * best_of(times, lambda: written(table, way)),
        "read ms": 1000 * best_of(times, lambda: read(data, way)),
    }


def bytes_by_column(table: pa.Table, way: Way) -> dict[str, int]:
    group = pq.ParquetFile(io.BytesIO(written(table, way))).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {c.path_in_schema.removesuffix(".list.element"): c.total_compressed_size for c in columns}


@dataclass
class Huffman:
    """A canonical Huffman code of the tokens' own frequencies; its table is a token's 2 bytes and a length's 1."""

    lengths: dict[int, int] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tokens: Sequence[int]) -> Huffman:
        heap = [(count, token, (token,)) for token, count in Counter(tokens).items()]
        heapq.heapify(heap)
        lengths = dict.fromkeys(set(tokens), 0)
        while len(heap) > 1:
            first, second = heapq.heappop(heap), heapq.heappop(heap)
            for token in (*first[2], *second[2]):
                lengths[token] += 1
            heapq.heappush(heap, (first[0] + second[0], min(first[1], second[1]), first[2] + second[2]))
        code, last, codes = 0, 0, {}
        for length, token in sorted((length, token) for token, length in lengths.items()):
            code <<= length - last
            codes[token], last = code, length
            code += 1
        return cls(lengths, codes)

    @property
    def table_bytes(self) -> int:
        return 3 * len(self.lengths)

    def encode(self, tokens: Sequence[int]) -> bytes:
        bits = "".join(format(self.codes[token], f"0{self.lengths[token]}b") for token in tokens)
        return np.packbits(np.frombuffer(bits.encode(), np.uint8) - ord("0")).tobytes()

    def decode(self, data: bytes, count: int) -> list[int]:
        """The window of the longest code at every bit is looked up by numpy; following them is Python's."""
        longest = max(self.lengths.values())
        tokens_at, lengths_at = np.zeros(2**longest, np.int32), np.zeros(2**longest, np.int32)
        for token, length in self.lengths.items():
            start = self.codes[token] << (longest - length)
            tokens_at[start : start + 2 ** (longest - length)] = token
            lengths_at[start : start + 2 ** (longest - length)] = length
        bits = np.concatenate([np.unpackbits(np.frombuffer(data, np.uint8)), np.zeros(longest, np.uint8)])
        windows = np.zeros(len(bits) - longest, np.int64)
        for place in range(longest):
            windows = windows * 2 + bits[place : place + len(windows)]
        token_of, length_of = tokens_at[windows].tolist(), lengths_at[windows].tolist()
        found, at = [], 0
        for _ in range(count):
            found.append(token_of[at])
            at += length_of[at]
        return found


def measure_coder(table: pa.Table, times: int) -> dict[str, float]:
    tokens = [token for row in table[IDS].to_pylist() for token in row]
    coder = Huffman.of(tokens)
    coded = coder.encode(tokens)
    assert coder.decode(coded, len(tokens)) == tokens
    entropy = -sum(n * math.log2(n / len(tokens)) for n in Counter(tokens).values()) / 8
    ids = table.select([IDS])
    way = WAYS["zstd 9, no dictionaries"]
    data = written(ids, way)
    return {
        "tokens": len(tokens),
        "distinct tokens": len(coder.lengths),
        "int32 bytes": 4 * len(tokens),
        "2-byte bytes": 2 * len(tokens),
        "Huffman bytes": len(coded),
        "Huffman table bytes": coder.table_bytes,
        "entropy bytes, a bound for any coder of single tokens": round(entropy),
        "Huffman encode ms": 1000 * best_of(times, lambda: Huffman.of(tokens).encode(tokens)),
        "Huffman decode ms": 1000 * best_of(times, lambda: coder.decode(coded, len(tokens))),
        "Parquet bytes, zstd 9": bytes_by_column(ids, way)[IDS],
        "Parquet read ms": 1000 * best_of(times, lambda: read(data, way)),
    }


def measure_advantages(table: pa.Table) -> dict[str, float]:
    """Exact rewards as they are stored, beside what a byte for each row's advantage costs and where it errs."""
    rewards = np.array([math.nan if r is None else r for r in table["reward"].to_pylist()])
    prompt_ids = np.array(table["prompt_id"].to_pylist())
    advantages = np.zeros(len(rewards))
    for prompt_id in set(prompt_ids.tolist()):
        rows = prompt_ids == prompt_id
        spread = np.nanstd(rewards[rows])
        advantages[rows] = np.nan_to_num((rewards[rows] - np.nanmean(rewards[rows])) / (spread + 1e-6))
    scale = np.abs(advantages).max() / 127 or 1.0
    return {
        "rows": len(rewards),
        "exact rewards, bytes in the file": bytes_by_column(table, WAYS["zstd 9, no dictionaries"])["reward"],
        "8-bit advantages, bytes": len(rewards),
        "largest error of an 8-bit advantage": float(np.abs(np.round(advantages / scale) * scale - advantages).max()),
    }


def make(policy_path: Path, file: Path, prompts: int) -> None:
    torch.set_num_threads(1)
    case = smollm2_case(policy_path, prompts, max_tokens=128)
    policy = load_policy(case.policy, device=torch.device("cpu"), dtype=torch.float32)
    with Grader() as grader:
        rollout = roll_out(policy, TransformersEngine(policy), grader.grade, case.prompts, case.params, seed=0)
    write_parquet(file, groups_to_table(rollout.groups))
    print(f"{file}: {len(case.prompts)} prompts, {rollout.generated_tokens} tokens in {rollout.generate_seconds:.0f} s")


def measure(files: Sequence[Path], times: int) -> dict[str, Any]:
    table = pa.concat_tables([pq.ParquetFile(file).read() for file in files]).replace_schema_metadata(None)
    lengths = [len(ids) for ids in table[IDS].to_pylist()]
    return {
        "machine": processor(),
        "rows": table.num_rows,
        "prompts": len(set(table["prompt_id"].to_pylist())),
        "completion tokens": sum(lengths),
        "ways": {name: measure_way(table, way, times) for name, way in WAYS.items()},
        "bytes by column": {name: bytes_by_column(table, WAYS[name]) for name in BY_COLUMN},
        "tokens coded": measure_coder(table, times),
        "advantages": measure_advantages(table),
        "rows made into groups ms": 1000 * best_of(times, lambda: groups_from_table(table)),
    }


BY_COLUMN = ("raw: no compression, no dictionaries", "zstd 1, dictionaries", "zstd 9, no dictionaries")


def show(result: dict[str, Any]) -> None:
    raw = result["ways"]["raw: no compression, no dictionaries"]["bytes"]
    shown = Shown("way", "bytes", "of raw", "a token", "write ms", "read ms")
    for name, found in result["ways"].items():
        size, a_token = found["bytes"], found["bytes"] / result["completion tokens"]
        times = (f"{found['write ms']:.1f}", f"{found['read ms']:.1f}")
        shown.add_row(name, f"{size:,}", f"{size / raw:.3f}", f"{a_token:.2f}", *times)
    Console(width=120).print(shown)
    print(json.dumps({key: value for key, value in result.items() if key != "ways"}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of = commands.add_parser("make")
    of.add_argument("smollm2", type=Path)
    of.add_argument("file", type=Path)
    of.add_argument("--prompts", type=int, default=60)
    of = commands.add_parser("table")
    of.add_argument("files", type=Path, nargs="+")
    of.add_argument("--times", type=int, default=7)
    args = parser.parse_args()
    if args.command == "make":
        make(args.smollm2, args.file, args.prompts)
        return
    result = measure(args.files, args.times)
    show(result)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
