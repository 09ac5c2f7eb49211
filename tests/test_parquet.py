"""A Parquet file that is not what was written is told from one that is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.parquet import is_whole, write_parquet

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
def test_a_changed_bit_of_any_byte_is_noticed_or_changes_nothing(written: Path, change: int) -> None:
    """The names of columns and the number of rows stand in the footer, which has no checksum of its own."""
    content = written.read_bytes()
    other = {place: written.with_name(f"other-{change}-{place}.parquet") for place in range(len(content))}
    for place, path in other.items():
        path.write_bytes(content[:place] + bytes([content[place] ^ change]) + content[place + 1 :])
    assert all(pq.read_table(path).equals(TABLE) for path in other.values() if is_whole(path))
    assert not is_whole(other[content.rindex(b"prompt_id", 0, content.index(b"dots"))]), "a column of another name"


@settings(max_examples=200)
@given(st.data())
def test_another_byte_anywhere_is_noticed_or_changes_nothing(written: Path, data: st.DataObject) -> None:
    content = bytearray(written.read_bytes())
    place, change = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255))
    content[place] ^= change
    other = written.with_name(f"other-{place}-{change}.parquet")
    other.write_bytes(content)
    assert not is_whole(other) or pq.read_table(other).equals(TABLE)
