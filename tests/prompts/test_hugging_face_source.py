"""Data sets that the package `datasets` reads, and the nested types that its versions write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_cases import read, read_source, write

from pipeline_lib.config import Columns, DatasetSource
from pipeline_lib.prompts import hugging_face
from pipeline_lib.prompts.sources import source_identity
from pipeline_lib.records import Prompt

CHAT = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "3"}, {"role": "user", "content": "No?"}]
ROWS = [{"prompt": CHAT, "answer": "2"}, {"prompt": CHAT[:1], "answer": "2"}]


def turns(rows: list[Any]) -> list[list[dict[str, str]]]:
    assert all(isinstance(row, Prompt) for row in rows), rows
    return [list(row.messages) for row in rows]


def hf_metadata(feature: Any) -> dict[bytes, bytes]:
    features = {"prompt": feature, "answer": {"dtype": "string", "_type": "Value"}}
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


TEXT = {"dtype": "string", "_type": "Value"}
MESSAGE = {"role": TEXT, "content": TEXT}
STRUCT = pa.struct([("role", pa.string()), ("content", pa.string())])
LARGE = pa.struct([("role", pa.large_string()), ("content", pa.large_string())])
VIEW = pa.struct([("role", pa.dictionary(pa.int32(), pa.string())), ("content", pa.string())])
LISTS = pa.struct([("role", pa.list_(pa.string())), ("content", pa.list_(pa.string()))])

# how a version of `datasets`, or polars, or verl's scripts store a list of messages
NESTED = {
    "list of structs (3)": (pa.list_(STRUCT), [MESSAGE]),
    "List (4 and later)": (pa.list_(STRUCT), {"feature": MESSAGE, "_type": "List"}),
    "Sequence, a struct of lists": (LISTS, {"feature": MESSAGE, "_type": "Sequence"}),
    "LargeList": (pa.large_list(LARGE), {"feature": MESSAGE, "_type": "LargeList"}),
    "a type that no version knows": (pa.list_(STRUCT), {"feature": MESSAGE, "_type": "NextYearsList"}),
    "dictionaries": (pa.list_(VIEW), [MESSAGE]),
}


def messages_table(kind: str) -> pa.Table:
    stored, feature = NESTED[kind]
    chats: list[Any] = [row["prompt"] for row in ROWS]
    if pa.types.is_struct(stored):
        chats = [{key: [message[key] for message in chat] for key in ("role", "content")} for chat in chats]
    columns = {"prompt": pa.array(chats, stored), "answer": pa.array(["2", "2"])}
    return pa.table(columns).replace_schema_metadata(hf_metadata(feature))


@pytest.mark.parametrize("kind", NESTED)
def test_parquet_of_any_version_gives_the_same_turns(tmp_path: Path, kind: str) -> None:
    pq.write_table(messages_table(kind), tmp_path / "a.parquet")
    assert turns(read(tmp_path / "a.parquet")) == [CHAT, CHAT[:1]]


def saved(directory: Path, kind: str) -> Path:
    """As save_to_disk of that version leaves a data set."""
    table = messages_table(kind)
    directory.mkdir()
    with pa.ipc.new_stream(str(directory / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    features = {"prompt": NESTED[kind][1], "answer": TEXT}
    (directory / "dataset_info.json").write_text(json.dumps({"features": features}))
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0", "_split": None}
    (directory / "state.json").write_text(
        json.dumps(
            {**state, "_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False}
        )
    )
    return directory


@pytest.mark.parametrize("kind", ["list of structs (3)", "List (4 and later)", "Sequence, a struct of lists"])
def test_a_saved_data_set_of_any_version(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("datasets")
    source = DatasetSource(path=str(saved(tmp_path / "chats", kind)))
    prompts = read_source(source)
    assert turns(prompts) == [CHAT, CHAT[:1]]
    assert {prompt.data_source for prompt in prompts} == {"chats"}  # type: ignore[union-attr]


def test_what_save_to_disk_writes_is_read_split_by_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    train = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": train, "test": train.select([0])}).save_to_disk(str(tmp_path / "chats"))
    assert turns(read_source(DatasetSource(path=str(tmp_path / "chats")))) == [CHAT, CHAT[:1]]
    assert turns(read_source(DatasetSource(path=str(tmp_path / "chats"), split="test"))) == [CHAT]
    with pytest.raises(ValueError, match="no split is named 'dev'; there are train, test"):
        read_source(DatasetSource(path=str(tmp_path / "chats"), split="dev"))


def test_a_directory_of_data_files(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    write(tmp_path / "train.jsonl", [{"q": f"{i}?", "a": {"final": str(i)}} for i in range(2500)])
    write(tmp_path / "test.jsonl", [{"q": "0?", "a": {"final": "0"}}])
    source = DatasetSource(path=str(tmp_path), columns=Columns(prompt="q", gold="a.final"))
    assert [prompt.gold for prompt in read_source(source)] == [str(i) for i in range(2500)]  # type: ignore[union-attr]
    test = source.model_copy(update={"split": "test"})
    assert len(read_source(test)) == 1
    with pytest.raises(ValueError, match="dev"):
        read_source(source.model_copy(update={"split": "dev"}))


def test_the_identity_of_a_directory_is_its_content(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    sources = []
    for parent in ("one", "two", "three"):
        (tmp_path / parent / "set").mkdir(parents=True)
        write(tmp_path / parent / "set" / "train.jsonl", ROWS if parent != "three" else ROWS[:1])
        sources.append(DatasetSource(path=str(tmp_path / parent / "set")))
    one, two, three = map(source_identity, sources)
    assert one == two != three
    assert source_identity(sources[0].model_copy(update={"split": "test"})) != one


def test_a_hub_id_needs_a_revision_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face, "find_spec", lambda name: True)
    unpinned = DatasetSource(path="openai/gsm8k", name="main")
    for look in (source_identity, read_source):
        with pytest.raises(ValueError, match=r"openai/gsm8k: no such directory; .* needs a `revision`"):
            look(unpinned)
    pinned = unpinned.model_copy(update={"revision": "e53f048"})
    assert source_identity(pinned) != source_identity(pinned.model_copy(update={"revision": "main"}))
    monkeypatch.setattr(hugging_face, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed: pip install -e \"\.\[datasets\]\""):
        read_source(pinned)


def test_a_hub_id_is_asked_for_as_the_config_says(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: dict[str, Any] = {}

    def load_dataset(path: str, name: str, **options: Any) -> Any:
        asked.update(path=path, name=name, **options)
        return datasets.Dataset.from_list([{"question": "1+1?", "answer": "#### 2"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = DatasetSource(path="openai/gsm8k", name="main", split="test", revision="e53f048")
    assert [prompt.gold for prompt in read_source(source)] == ["2"]  # type: ignore[union-attr]
    expected = {"path": "openai/gsm8k", "name": "main", "split": "test", "revision": "e53f048", "streaming": False}
    assert asked == expected
