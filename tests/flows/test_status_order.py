"""`rlsift status` lists steps as a run takes them, whatever the clock said when they were done."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from flow_cases import write_config

from flows.chain import places
from flows.commands.status import ORDER
from pipeline_lib.config_file import load_config


@pytest.mark.parametrize(
    "override", ["seed=1", "influence={type: exact, on_stale: recollect}", "selection={type: random, alpha: 0.5}"]
)
def test_the_order_is_that_of_the_chain(tmp_path: Path, override: str) -> None:
    taken = places(load_config(write_config(tmp_path), [override]))
    for _, steps in groupby(taken, key=lambda place: place[0]):
        positions = [ORDER.index(name) for _, name in steps]
        assert positions == sorted(positions)
