"""Groups survive Arrow and Parquet unchanged."""

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_cases import PROMPTS, as_group, tiny_policy

from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rollout import (
    ROLLOUT_ENCODING,
    ROLLOUT_SCHEMA,
    SamplingParams,
    TransformersEngine,
    groups_from_table,
    groups_to_table,
    read_groups,
)

token_ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple)


@st.composite
def groups(draw: st.DrawFn) -> list[RolloutGroup]:
    prompt_ids = draw(st.lists(st.from_regex(r"[0-9a-f]{16}", fullmatch=True), max_size=4, unique=True))
    return [
        RolloutGroup(prompt_id, tuple(draw(trajectory(prompt_id, k)) for k in range(draw(st.integers(1, 4)))))
        for prompt_id in prompt_ids
    ]


@st.composite
def trajectory(draw: st.DrawFn, prompt_id: str, sample_index: int) -> Trajectory:
    completion = draw(token_ids)
    logprob = st.floats(-1e3, 0, width=32)
    return Trajectory(
        prompt_id=prompt_id,
        sample_index=sample_index,
        prompt_token_ids=draw(token_ids),
        completion_token_ids=completion,
        behaviour_logprobs=tuple(draw(logprob) for _ in completion),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
        text=draw(st.text()),
        reward=draw(st.none() | st.floats(allow_nan=False)),
        correct=draw(st.booleans()),
        verifier_status=draw(st.sampled_from(["ok", "unparseable_answer", "timeout", "error"])),
    )


@settings(max_examples=50)
@given(groups())
def test_round_trip_through_a_parquet_file(made: list[RolloutGroup]) -> None:
    file = io.BytesIO()
    pq.write_table(groups_to_table(made), file, **ROLLOUT_ENCODING)
    table = pq.read_table(file)
    assert table.schema.equals(ROLLOUT_SCHEMA)
    assert groups_from_table(table) == made


@given(groups(), st.data())
def test_two_groups_of_one_prompt_stay_two(made: list[RolloutGroup], data: st.DataObject) -> None:
    again = [group for group in made for _ in range(data.draw(st.integers(1, 3)))]
    assert groups_from_table(groups_to_table(again)) == again


def test_what_the_engine_makes_survives_exactly() -> None:
    params = SamplingParams(n=4, temperature=0.8, max_tokens=10, batch_size=4)
    [completions] = TransformersEngine(tiny_policy()).generate([PROMPTS[0]], params, seed=0)
    made = [as_group(PROMPTS[0], completions)]
    assert groups_from_table(groups_to_table(made)) == made


def sampled_groups() -> list[RolloutGroup]:
    params = SamplingParams(n=16, temperature=1.0, max_tokens=40, batch_size=64)
    groups = TransformersEngine(tiny_policy()).generate(PROMPTS, params, seed=0)
    return [as_group(prompt, completions) for prompt, completions in zip(PROMPTS, groups, strict=True)]


def test_shards_written_before_there_was_an_encoding_read_the_same(tmp_path: Path) -> None:
    made = sampled_groups()[:1]
    encodings: dict[str, dict[str, Any]] = {"now": ROLLOUT_ENCODING, "before": {"compression": "zstd"}}
    for name, encoding in encodings.items():
        pq.write_table(groups_to_table(made), tmp_path / name, **encoding)
        assert read_groups(tmp_path / name) == made


def test_numbers_that_do_not_repeat_are_not_written_twice(tmp_path: Path) -> None:
    table = groups_to_table(sampled_groups())
    sizes = []
    for encoding in (ROLLOUT_ENCODING, {"compression": "zstd"}):
        pq.write_table(table, tmp_path / "file", **encoding)
        sizes.append((tmp_path / "file").stat().st_size)
    assert sizes[0] < 0.9 * sizes[1]
