"""The real data sets give the counts that they are known to have."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_cases import rejects_of

from pipeline_lib.config import FileSource
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.prompts.prompt_set import PromptSet

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def read(name: str) -> PromptSet:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs {path}")
    return ingest([FileSource(path=str(path))], set_name="test")


@pytest.mark.parametrize(("name", "count"), [("train", 7473), ("test", 1319)])
def test_gsm8k(name: str, count: int) -> None:
    result = read(f"gsm8k/{name}.jsonl")
    assert (result.n_rows, result.n_prompts, result.n_duplicates) == (count, count, 0)
    assert not len(result.rejects)


def test_dapo_math() -> None:
    result = read("dapo_math/train.parquet")
    assert (result.n_rows, result.n_prompts) == (17_917, 17_391)
    assert result.reject_counts == {"conflicting_gold": 14}
    assert len({reject["detail"] for reject in rejects_of(result)}) == 7
    assert result.n_duplicates == 17_917 - 17_391 - 14
