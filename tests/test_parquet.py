"""A Parquet file that is not what was written is told from one that is."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.parquet import MARK, is_whole, write_parquet

TABLE = pa.table({"prompt_id": [f"p{i}" for i in range(50)], "dots": [[i / 7, -i / 3] for i in range(50)]})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    write_parquet(path, TABLE)
    return path


def test_a_file_is_whole_only_where_it_is_there_to_its_end(written: Path, tmp_path: Path) -> None:
    assert is_whole(written)
    assert not is_whole(tmp_path / "none.parquet")
    cut = tmp_path / "cut.parquet"
    content = written.read_bytes()
    for length in (0, 3, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        assert not is_whole(cut)


@pytest.mark.parametrize("change", [4, 128])
def test_a_changed_bit_of_any_byte_is_noticed(written: Path, change: int) -> None:
    """The names of columns and the number of rows stand in the footer, which has no checksum of its own."""
    content = written.read_bytes()
    missed = []
    for place in range(len(content)):
        other = written.with_name(f"other-{change}-{place}.parquet")
        other.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
        if is_whole(other):
            missed.append(place)
            assert pq.read_table(other).equals(TABLE)
    start = content.rindex(MARK)
    assert set(missed) <= set(range(start, start + len(MARK))), "without its mark it passes for an older one"


def test_a_file_of_an_older_rlsift_goes_by_its_pages(tmp_path: Path) -> None:
    older = tmp_path / "older.parquet"
    pq.write_table(TABLE, older, compression="zstd", write_page_checksum=True)
    assert is_whole(older)
    content = bytearray(older.read_bytes())
    content[len(content) // 4] ^= 4
    older.write_bytes(content)
    assert not is_whole(older)


def test_the_same_rows_give_the_same_bytes_and_any_reader_reads_them(written: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.parquet"
    write_parquet(again, TABLE)
    assert again.read_bytes() == written.read_bytes()
    assert pq.read_table(again).equals(TABLE) and pq.read_schema(again).metadata is None
    assert duckdb.sql(f"FROM '{again}'").to_arrow_table().to_pylist() == TABLE.to_pylist()


@settings(max_examples=200)
@given(st.data())
def test_another_byte_anywhere_is_noticed_or_changes_nothing(written: Path, data: st.DataObject) -> None:
    content = bytearray(written.read_bytes())
    place, change = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255))
    content[place] ^= change
    other = written.with_name(f"other-{place}-{change}.parquet")
    other.write_bytes(content)
    assert not is_whole(other) or pq.read_table(other).equals(TABLE)
