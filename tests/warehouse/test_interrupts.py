"""Ctrl-C in the middle of a write: the file must stay usable in this process, which has a step to mark."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from warehouse import Warehouse

SCRIPT = """
import random, signal, sys, time
from pathlib import Path
import pyarrow as pa
from warehouse import Warehouse

warehouse = Warehouse(Path(sys.argv[1]))
n = 200
texts = {name: ["x"] * n for name in ("fingerprint", "path", "sha256")}
numbers = {"shard_index": list(range(n)), "n_rows": [1] * n, "n_bytes": [1] * n}
table = pa.table(texts | numbers)
warehouse.write({"shards": table})
started = time.perf_counter()
warehouse.write({"shards": table})
seconds = time.perf_counter() - started
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
rng, interrupted = random.Random(1), 0
for _ in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, seconds))
        warehouse.write({"shards": table})
        time.sleep(seconds)
    except KeyboardInterrupt:
        interrupted += 1
        warehouse.write({"shards": table})  # as a step marks itself
print(interrupted, warehouse.query("SELECT count(*) AS n FROM shards")["n"][0].as_py())
"""


def test_an_interrupt_waits_for_the_write_to_end_and_the_next_write_goes_through(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    interrupted, n_rows = map(int, done.stdout.split())
    assert interrupted == 40 and n_rows == 200


def test_an_interrupt_while_a_file_is_opened_leaves_no_connection_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in the way of the read-write connection that marks the step as stopped."""
    warehouse = Warehouse(tmp_path)
    warehouse.publish()
    connect = duckdb.connect

    def interrupted(*args: object, **options: object) -> object:
        monkeypatch.undo()
        connection = connect(*args, **options)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
        return connection

    monkeypatch.setattr(duckdb, "connect", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        warehouse.query("SELECT 1")
    assert raised.tb is not None, "the traceback keeps the frames alive that had the connection"
    warehouse.publish()
