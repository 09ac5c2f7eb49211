"""The configs for logic and for code: their prompts are ingested, and their golds are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_lib.config import Columns, FileSource, ReasoningGymSource, RunConfig
from pipeline_lib.config_file import load_config
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.verifier import RIGHT, WRONG

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def logic() -> RunConfig:
    return load_config(CONFIGS / "smollm2_logic.yaml")


def test_logic_prompts_have_graded_difficulty(logic: RunConfig) -> None:
    result = ingest(logic.prompts.train, set_name="train")
    assert not result.rejects
    assert result.n_prompts >= 30
    difficulties: dict[str, set[str]] = {}
    verifier = get_verifier("reasoning_gym")
    for prompt in result.prompts.values():
        difficulty = json.dumps(prompt.verifier_args.get("config"), sort_keys=True)
        difficulties.setdefault(str(prompt.verifier_args["dataset"]), set()).add(difficulty)
        assert verifier.grade(prompt, prompt.gold) == RIGHT
        assert not verifier.grade(prompt, "Neither yes nor no.").correct
    assert {name: len(found) for name, found in difficulties.items()} == {
        "syllogism": 2,
        "knights_knaves": 2,
        "zebra_puzzles": 2,
    }


def test_harder_logic_is_longer() -> None:
    def length(people: int) -> float:
        task = {"name": "knights_knaves", "count": 10, "config": {"n_people": people, "depth_constraint": people}}
        source = ReasoningGymSource.model_validate({"tasks": [task]})
        prompts = ingest([source], set_name="x").prompts.values()
        return sum(len(p.messages[-1]["content"]) for p in prompts) / len(prompts)

    assert length(2) < length(3) < length(4)


def test_code_prompts_are_ingested_and_their_references_pass() -> None:
    [source] = load_config(CONFIGS / "smollm2_code.yaml").prompts.train
    assert isinstance(source, FileSource)
    result = ingest([source], set_name="train")
    rows = [json.loads(line) for line in Path(source.path).read_text().splitlines()]
    assert result.n_prompts == len(rows) and not result.rejects
    verifier = get_verifier("code")
    for row, prompt in zip(rows, result.prompts.values(), strict=True):
        assert verifier.grade(prompt, f"```python\n{row['reference']}```") == RIGHT
    assert verifier.grade(prompt, "```python\ndef f(): pass\n```") == WRONG


@pytest.mark.parametrize(
    "tests",
    [
        ["assert add(1, 2) == 3"],
        ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
        {"setup": "x = 1", "asserts": ["assert add(x, 2) == 3"]},
        {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]},
        [{"input": "1\n2", "output": "3", "fn_name": "add"}],
        ['["assert add(1, 2) == 3"]'],
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_tests_may_be_lists_and_objects(tmp_path: Path, tests: Any, suffix: str) -> None:
    path, row = tmp_path / f"rows.{suffix}", {"text": "Add.", "tests": tests}
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps(row))
    columns = Columns(prompt="text", gold="tests")
    [prompt] = ingest([FileSource(path=str(path), columns=columns, verifier="code")], set_name="x").prompts.values()
    verifier = get_verifier("code")
    assert verifier.grade(prompt, "```python\ndef add(a, b): return a + b\n```") == RIGHT
    assert verifier.grade(prompt, "```python\ndef add(a, b): return a - b\n```") == WRONG


def test_tests_that_are_none_are_listed_not_graded(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"prompt": "Add.", "solution": json.dumps(["assert add(1, 2) == 3"])}
    path.write_text("\n".join(json.dumps(row) for row in (good, {"prompt": "Subtract.", "solution": "-1"})))
    result = ingest([FileSource(path=str(path), verifier="code")], set_name="train")
    assert result.n_prompts == 1
    assert result.reject_counts == {"unparseable_gold": 1}
