"""Each file format gives the prompts it should, and a reason for each row that gives none."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_cases import one, read, write

from pipeline_lib.config import FileSource
from pipeline_lib.prompts import FORMATS
from pipeline_lib.prompts.files import final_answer, open_rows
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.records import Prompt

VERL: dict[str, Any] = {
    "data_source": "math_dapo",
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}],
    "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a-b", "split": "train"},
}
TRL = {"prompt": "1+1?", "solution": r"One and one make $\boxed{2}$."}
GSM8K = {"question": "How much?", "answer": "A lot: <<1080=1080>>\n#### $1,080"}


def test_gsm8k(tmp_path: Path) -> None:
    prompt = one(write(tmp_path / "train.jsonl", [GSM8K]))
    assert prompt == Prompt("gsm8k", ({"role": "user", "content": "How much?"},), "1080", "math")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("#### (1,2)", "(1,2)"),
        ("#### 1,2", "1,2"),
        ("#### -$1,234,567.50", "-1234567.50"),
        ("#### 5$", "5"),
        ("####: 7\nThat is all.", "7"),
        ("#### 1\n#### 2", "2"),
    ],
)
def test_golds_of_gsm8k(tmp_path: Path, answer: str, gold: str) -> None:
    prompt = one(write(tmp_path / "a.jsonl", [{**GSM8K, "answer": answer, "data_source": "mine"}]))
    assert (prompt.gold, prompt.data_source) == (gold, "mine")


def test_verl(tmp_path: Path) -> None:
    prompt = one(write(tmp_path / "train.jsonl", [VERL]))
    assert prompt == Prompt("math_dapo", tuple(VERL["prompt"]), "2", "math", extra=VERL["extra_info"])


@pytest.mark.parametrize("info", [{"index": 3}, None, "none"])
def test_verl_extra_info_of_any_kind(tmp_path: Path, info: Any) -> None:
    prompt = one(write(tmp_path / "train.jsonl", [{**VERL, "extra_info": info}]))
    assert prompt.extra == (info if isinstance(info, dict) else {})


@pytest.mark.parametrize("gold_column", ["solution", "ground_truth", "answer"])
@pytest.mark.parametrize("source_column", ["data_source", "dataset", "source", None])
def test_trl(tmp_path: Path, gold_column: str, source_column: str | None) -> None:
    named = {source_column: "named"} if source_column else {}
    prompt = one(write(tmp_path / "stem.jsonl", [{"prompt": "1+1?", gold_column: 2, **named}]))
    source = "named" if source_column else "stem"
    assert prompt == Prompt(source, ({"role": "user", "content": "1+1?"},), "2", "math")


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"solution": "One and one make two.", "answer": "2"}, "2"),
        ({"ground_truth": "2", "answer": "two", "solution": "3"}, "2"),
        ({"ground_truth": "", "answer": " ", "solution": "2"}, "2"),
        ({"ground_truth": None, "answer": [], "solution": "2"}, "2"),
    ],
)
def test_trl_takes_the_first_gold_that_is_not_blank(tmp_path: Path, row: dict[str, Any], gold: str) -> None:
    assert one(write(tmp_path / "a.jsonl", [{"prompt": "1+1?", **row}])).gold == gold


def test_trl_messages(tmp_path: Path) -> None:
    prompt = one(write(tmp_path / "a.jsonl", [{"prompt": VERL["prompt"], "solution": "2"}]))
    assert prompt.messages == tuple(VERL["prompt"])


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("180", "180"),
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("$x^2$", "x^2"),
        ("two\n#### 2", "2"),
        ("two\n#### 2\nThat was easy.", "2"),
        ("1,080", "1,080"),
        ("$$x^2$$", "x^2"),
        (r"$\$5$", r"\$5"),
        ("$3$ or $5$", "$3$ or $5$"),
    ],
)
def test_golds_are_bared(gold: str, answer: str) -> None:
    assert final_answer(gold) == answer


def test_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{**VERL, "prompt": [*VERL["prompt"], {"role": "system", "content": "Hm"}]}])
    prompt = one(path, suffix="\nBox it.", verifier="exact")
    assert [m["content"] for m in prompt.messages] == ["Be brief.", "1+1?\nBox it.", "Hm"]
    assert prompt.verifier == "exact"
    assert prompt.prompt_id != one(path).prompt_id


def test_exact_leaves_the_gold_as_it_is(tmp_path: Path) -> None:
    assert one(write(tmp_path / "a.jsonl", [TRL]), verifier="exact").gold == TRL["solution"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (b'{"question": "caf\xe9", "answer": "#### 1"}', "not_utf8"),
        ({**GSM8K, "question": "half \ud800"}, "not_utf8"),
        ({**GSM8K, "answer": "\udc00 #### 1"}, "not_utf8"),
        (b'{"question": ', "not_json"),
        (b'{"question": NaN}', "not_json"),
        (b"[" * 100_000 + b'"question"', "not_json"),
        (b'{"question": "?", "answer": "#### 1", "answer": "#### 2"}', "not_json"),
        (b'["question", "answer"]', "not_object"),
        ({**GSM8K, "question": " "}, "no_prompt"),
        ({**GSM8K, "question": None}, "no_prompt"),
        ({"question": "?"}, "no_gold"),
        ({**GSM8K, "answer": "42"}, "no_gold"),
        ({**GSM8K, "answer": "42 ####"}, "no_gold"),
        ({**TRL, "solution": None}, "no_gold"),
        ({**TRL, "solution": True}, "no_gold"),
        ({**TRL, "solution": ["2", "3"]}, "no_gold"),
        ({**TRL, "solution": []}, "no_gold"),
        ({**TRL, "solution": r"\boxed{2"}, "unparseable_gold"),
        ({**TRL, "prompt": 5}, "no_prompt"),
        ({**TRL, "prompt": []}, "no_prompt"),
        ({**TRL, "prompt": ["1+1?"]}, "no_prompt"),
        ({**TRL, "prompt": [{"role": "system", "content": "x"}]}, "no_prompt"),
        ({**TRL, "prompt": [{"content": "x"}]}, "no_prompt"),
        ({**TRL, "prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "no_prompt"),
        ({**TRL, "prompt": [{"role": "User", "content": "x"}]}, "no_prompt"),
        ({**TRL, "prompt": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]}, "no_prompt"),
        ({**TRL, "prompt": "[{'role': 'user', 'content': 'x'}]"}, "no_prompt"),
        ({**VERL, "data_source": ""}, "no_data_source"),
        ({**VERL, "reward_model": None}, "no_gold"),
        ({**VERL, "reward_model": {"ground_truth": ""}}, "no_gold"),
        ({**VERL, "ability": "code"}, "no_verifier"),
        ({**VERL, "reward_model": {"ground_truth": "2", "style": "model"}}, "no_verifier"),
    ],
)
def test_bad_rows(tmp_path: Path, row: Any, expected: str) -> None:
    marker = row if isinstance(row, dict) else {"question": ""}
    good = TRL if "solution" in marker else GSM8K if "question" in marker else VERL
    first, bad = read(write(tmp_path / "bad.jsonl", [good, row]))
    assert isinstance(first, Prompt)
    assert isinstance(bad, BadRow) and bad.detail
    assert bad.reason == expected


def test_a_named_verifier_grades_what_auto_would_not(tmp_path: Path) -> None:
    assert one(write(tmp_path / "a.jsonl", [{**VERL, "ability": "code"}]), verifier="exact").gold == "2"


def test_a_broken_first_line_hides_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [b"\xff", b"", GSM8K])
    rows = list(open_rows(FileSource(path=str(path))).prompts)
    assert [index for index, _ in rows] == [0, 2]
    assert isinstance(rows[1][1], Prompt)


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    one(write(tmp_path / "a.jsonl", [b"\xef\xbb\xbf" + json.dumps(GSM8K).encode()]))


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([GSM8K, 5]))
    good, bad = read(path)
    assert isinstance(good, Prompt) and isinstance(bad, BadRow)


def list_of_structs() -> pa.Table:
    return pa.Table.from_pylist([VERL, {**VERL, "extra_info": None}])


def struct_of_lists() -> pa.Table:
    """As older `datasets` store a sequence of features."""
    messages = {key: [message[key] for message in VERL["prompt"]] for key in ("role", "content")}
    return pa.Table.from_pylist([{**VERL, "prompt": messages}] * 2)


def large_types() -> pa.Table:
    message = pa.struct([("role", pa.large_string()), ("content", pa.large_string())])
    table = list_of_structs()
    prompts = pa.array(table["prompt"].to_pylist(), pa.large_list(message))
    return table.set_column(table.schema.get_field_index("prompt"), "prompt", prompts)


@pytest.mark.parametrize("table", [list_of_structs(), struct_of_lists(), large_types()], ids=["new", "old", "large"])
def test_parquet(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    first, second = read(tmp_path / "a.parquet")
    assert isinstance(first, Prompt) and isinstance(second, Prompt)
    assert first.messages == second.messages == tuple(VERL["prompt"])
    assert first.extra == VERL["extra_info"]


def test_parquet_with_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffa")]
    )
    pq.write_table(pa.table({"prompt": text, "answer": ["1", "2"]}), tmp_path / "a.parquet")
    bad, good = read(tmp_path / "a.parquet")
    assert isinstance(bad, BadRow) and bad.reason == "not_utf8"
    assert isinstance(good, Prompt) and good.gold == "2"


def test_a_number_that_is_missing_is_no_gold(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"prompt": ["1?", "2?", "3?"], "answer": [1.0, math.nan, math.inf]}), tmp_path / "a.parquet"
    )
    good, *missing = read(tmp_path / "a.parquet")
    assert isinstance(good, Prompt) and good.gold == "1"
    for bad in missing:
        assert isinstance(bad, BadRow) and bad.reason == "no_gold"
    assert "found nan" in str(missing[0])


@pytest.mark.parametrize(
    ("values", "gold"),
    [
        (pa.array([18.0]), "18"),
        (pa.array([-0.5]), "-0.5"),
        (pa.array([1e300]), "1e+300"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([Decimal("18.00")]), "18"),
        (pa.array([Decimal("100")]), "100"),
        (pa.array([Decimal("0.50")]), "0.5"),
        (pa.array([["18"]]), "18"),
        (pa.array([[0.1]], pa.list_(pa.float32())), "0.1"),
        (pa.array(["18.0"]), "18.0"),
    ],
)
def test_numbers_are_golds_as_one_writes_them(tmp_path: Path, values: pa.Array, gold: str) -> None:
    pq.write_table(pa.table({"prompt": ["?"], "answer": values}), tmp_path / "a.parquet")
    assert one(tmp_path / "a.parquet").gold == gold


@pytest.mark.parametrize(
    "times",
    [
        pa.array([10**14], pa.int64()).cast(pa.timestamp("s")),
        pa.array([10**14], pa.int64()).cast(pa.timestamp("s", "UTC")),
        pa.array([0], pa.int64()).cast(pa.timestamp("us", "Foo/Bar")),
        pa.array([1], pa.int64()).cast(pa.timestamp("ns")),
        pa.array([10**8], pa.int32()).cast(pa.date32()),
        pa.array([1], pa.int64()).cast(pa.time64("ns")),
        pa.array([10**15], pa.int64()).cast(pa.duration("s")),
    ],
    ids=lambda times: str(times.type),
)
def test_times_that_python_cannot_hold_end_no_ingest(tmp_path: Path, times: pa.Array) -> None:
    info = pa.StructArray.from_arrays([times, pa.array([[0.1]], pa.list_(pa.float32()))], names=["at", "scores"])
    table = pa.Table.from_pylist([VERL]).drop(["extra_info"])
    table = table.append_column("extra_info", info).append_column("list", pa.array([[times[0]]], pa.list_(times.type)))
    pq.write_table(table.append_column("at", times), tmp_path / "a.parquet")
    extra = one(tmp_path / "a.parquet").extra
    assert isinstance(extra["at"], str) and extra["scores"] == [0.1]


@pytest.mark.parametrize("number", [10**400, -7])
def test_whole_numbers_are_golds_of_any_size(tmp_path: Path, number: int) -> None:
    assert one(write(tmp_path / "a.jsonl", [{"prompt": "?", "answer": number}])).gold == str(number)


def test_a_lone_surrogate_beside_the_prompt_is_replaced(tmp_path: Path) -> None:
    extra = one(write(tmp_path / "a.jsonl", [{**VERL, "extra_info": {"not\ud800e": "half \ud800"}}])).extra
    assert extra == {"not?e": "half ?"}


def test_extra_is_fit_for_json(tmp_path: Path) -> None:
    rows = [{**VERL, "extra_info": {"score": float("nan"), "raw": b"\xff", "deep": [{"n": 1}]}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    extra = one(tmp_path / "a.parquet").extra
    assert extra["score"] is None and extra["deep"] == [{"n": 1}]
    json.dumps(extra, allow_nan=False)


def test_unknown_schema_lists_columns_and_formats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"instruction": "1+1?", "level": 1}])
    with pytest.raises(ValueError) as caught:
        read(path)
    for text in ("a.jsonl", "instruction, level", *FORMATS, "reward_model", "solution", "question", "--map"):
        assert text in str(caught.value)


def test_the_wrong_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="verl wants data_source"):
        read(write(tmp_path / "a.jsonl", [GSM8K]), format="verl")


def test_a_named_format_is_used(tmp_path: Path) -> None:
    row = {**GSM8K, "prompt": "1+1?", "ground_truth": "2"}
    path = write(tmp_path / "a.jsonl", [row])
    assert one(path, format="trl").gold == "2"
    assert one(path, format="gsm8k").gold == "1080"


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("a.txt", b"", r"must end in \.jsonl, \.json, \.csv, \.parquet"),
        ("a.parquet", b"not Parquet", "not readable as Parquet"),
        ("a.json", b"{", r"name it \.jsonl"),
        ("a.json", b"\xff", "not readable as JSON"),
        ("a.json", b'[{"question": {"a": 1, "a": 2}}]', "an object names 'a' twice"),
        ("a.json", b"{}", "must be a list of objects, found dict"),
        ("a.jsonl", None, "no such file"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes | None, rule: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rule) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = [pa.array([value]) for value in ("?", "1", "2")]
    pq.write_table(pa.Table.from_arrays(columns, names=["prompt", "answer", "answer"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: each column must have its own name; more than one is answer"):
        read(tmp_path / "a.parquet")


def test_a_parquet_file_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt": [f"{i}?" for i in range(5000)], "answer": ["1"] * 5000}), path)
    data = bytearray(path.read_bytes())
    data[100:2000] = bytes(1900)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="not readable as Parquet"):
        read(path)
