"""Parquet shards: whole or not there."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from warehouse.lake import ShardFile, read_shard, shard_metadata, verify_shard, write_shard

ROWS = pa.table({"prompt_id": ["a", "b"], "completion_token_ids": [[1, 2], []], "reward": [0.5, None]})


def test_a_shard_reads_back_with_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "rollouts" / "fingerprint=1" / "shard-00000.parquet"
    shard = write_shard(path, ROWS, {"engine": "transformers", "grüße": "日本"})
    assert shard == ShardFile(path, 2, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert read_shard(path).replace_schema_metadata(None) == ROWS
    assert shard_metadata(path) == {"engine": "transformers", "grüße": "日本"}
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_shard(tmp_path / "a.parquet", ROWS, {"seed": "1"})
    again = write_shard(tmp_path / "a.parquet", ROWS.replace_schema_metadata({"left": "over"}), {"seed": "1"})
    assert again == first
    assert write_shard(tmp_path / "a.parquet", ROWS, {"seed": "2"}).sha256 != first.sha256


def test_an_empty_shard(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.parquet", ROWS.slice(0, 0), {})
    assert (shard.n_rows, read_shard(shard.path).schema.names) == (0, ROWS.schema.names)
    assert shard_metadata(shard.path) == {}


def test_verify(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.parquet", ROWS, {})
    assert verify_shard(shard.path, shard.sha256)
    shard.path.write_bytes(shard.path.read_bytes()[:-1])
    assert not verify_shard(shard.path, shard.sha256)
    assert not verify_shard(tmp_path / "missing.parquet", shard.sha256)


def test_an_error_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = write_shard(tmp_path / "a.parquet", ROWS, {})

    def fail_half_way(table: pa.Table, file: object, **options: object) -> None:
        os.write(file.fileno(), b"PAR1 half a file")  # type: ignore[attr-defined]
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", fail_half_way)
    with pytest.raises(OSError, match="No space left"):
        write_shard(shard.path, ROWS, {})
    assert list(tmp_path.iterdir()) == [shard.path]
    assert verify_shard(shard.path, shard.sha256)


def test_a_kill_leaves_nothing_that_a_reader_sees(tmp_path: Path) -> None:
    die = (
        "import os, signal, sys; from pathlib import Path; import pyarrow as pa; from warehouse import lake\n"
        "lake.os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "lake.write_shard(Path(sys.argv[1]), pa.table({'x': [1]}), {})"
    )
    path = tmp_path / "shard-00000.parquet"
    assert subprocess.run([sys.executable, "-c", die, str(path)], cwd=Path.cwd()).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.glob("*.parquet")) == []
    write_shard(path, ROWS, {})
    assert list(tmp_path.glob("*.parquet")) == [path]


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.parquet"):
        write_shard(tmp_path / "shard.pq", ROWS, {})
