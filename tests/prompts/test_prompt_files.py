"""Files as other projects and tools write them: CSV with its quotes, line ends, torn ends, compressed ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from prompt_cases import read, write

from pipeline_lib.config import FileSource
from pipeline_lib.prompts.files import open_rows
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.records import Prompt

ROW = {"question": "What is 12 · 15?", "answer": "12 · 15 = <<12*15=180>>180\n#### 180"}


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = 'question,answer\r\n"What, in ""one"" word,\r\nis 1 + 1?",2\r\n\r\nOnly one value\r\nä + ä?,2ä\r\n"torn,3'
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    good, short, umlaut, torn = read(path)
    assert isinstance(good, Prompt) and good.messages[0]["content"] == 'What, in "one" word,\r\nis 1 + 1?'
    assert isinstance(short, BadRow) and short.reason == "not_csv" and "1 values for 2 columns" in short.detail
    assert isinstance(umlaut, Prompt) and umlaut.gold == "2ä"
    assert isinstance(torn, BadRow) and torn.reason == "not_csv" and "unexpected end of data" in torn.detail


def test_a_csv_quote_that_is_never_closed_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{i}?,{i}\n" for i in range(2000))
    (tmp_path / "a.csv").write_text(f'question,answer\n"torn,3\n{rows}')
    with pytest.raises(ValueError, match=r"a quote is opened in the row of line 2 and never closed.*up to 2002"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('question,answer\n1?,1\n"torn,3\n2?,2\nwhat is "so"?,4\n5?,5\n')
    first, bad, last = read(tmp_path / "a.csv")
    assert isinstance(first, Prompt) and isinstance(last, Prompt) and last.gold == "5"
    assert isinstance(bad, BadRow) and bad.detail.endswith("in lines 3 to 5")


def test_a_csv_value_that_is_not_utf8_is_one_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"question,answer\ncaf\xe9?,1\ntea?,2\n")
    bad, good = read(tmp_path / "a.csv")
    assert isinstance(bad, BadRow) and bad.reason == "not_utf8"
    assert isinstance(good, Prompt)


def test_a_csv_value_may_be_long_and_have_lines(tmp_path: Path) -> None:
    long = "x" * 200_000 + "\nsecond, line\nthird"
    (tmp_path / "a.csv").write_text(f'question,answer\n1?,1\n"{long}",2\n3?,3\n')
    prompts = [prompt for prompt in read(tmp_path / "a.csv") if isinstance(prompt, Prompt)]
    assert [prompt.messages[0]["content"] for prompt in prompts] == ["1?", long, "3?"]


@pytest.mark.parametrize("header", [b"question,answer,answer", b"question,,answer"])
def test_a_csv_header_must_name_each_column_once(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(header + b"\na,b,c\n")
    with pytest.raises(ValueError, match=r"a\.csv: the first line must name each column once"):
        read(tmp_path / "a.csv")


def test_crlf_and_empty_lines(tmp_path: Path) -> None:
    rows = [ROW, b"", b"  ", ROW, b""]
    path = write(tmp_path / "a.jsonl", rows, end=b"\r\n")
    found = list(open_rows(FileSource(path=str(path))).prompts)
    assert [index for index, _ in found] == [0, 3]
    assert all(isinstance(row, Prompt) for _, row in found)


def test_a_torn_last_line_is_said_to_be_one(tmp_path: Path) -> None:
    whole = json.dumps(ROW).encode()
    good, torn = read(write(tmp_path / "a.jsonl", [whole, whole[:50]]))
    assert isinstance(good, Prompt)
    assert isinstance(torn, BadRow) and torn.reason == "not_json" and "may be cut off" in torn.detail


def test_compressed_files(tmp_path: Path) -> None:
    lines = (json.dumps({"prompt": f"{i}?", "answer": i}).encode() + b"\n" for i in range(3000))
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines)))
    rows = read(path)
    assert len(rows) == 3000
    assert isinstance(rows[0], Prompt) and rows[0].data_source == "train"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"train\.jsonl\.gz: not readable as gzip after row \d+"):
        read(path)


def test_a_file_without_one_readable_row_is_refused_early(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [b"question,answer", *[b"what?,1"] * 200])
    with pytest.raises(ValueError, match=r"none of the first 100 rows is readable\. Row 0: not_json"):
        read(path)
