"""Where the server of a run from the shell lives, and that its death needs nobody's care."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from flow_cases import environment, processes_marked, wait_until

from flows.prefect_server import LocalServer, _home_of_its_own


def test_two_runs_of_one_root_have_a_home_each_and_a_free_one_is_used_again(tmp_path: Path) -> None:
    first, second, third = ExitStack(), ExitStack(), ExitStack()
    assert _home_of_its_own(tmp_path / "prefect", first) == tmp_path / "prefect"
    assert _home_of_its_own(tmp_path / "prefect", second) == tmp_path / "prefect-2"
    first.close()
    assert _home_of_its_own(tmp_path / "prefect", third) == tmp_path / "prefect"
    second.close()
    third.close()


def test_a_server_that_is_named_is_used_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    LocalServer(tmp_path)
    assert os.environ["PREFECT_API_URL"] == "http://127.0.0.1:9/api"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's death")
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from flows.child_process import Child; "
        "child = Child('sleeper', ['-c', 'print(1, flush=True); import time; time.sleep(600)'], "
        "log=Path(sys.argv[1]), env={'RLSIFT_TEST_CHILD': sys.argv[1]}); child.start(); time.sleep(600)"
    )
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", code, str(log)], env=environment(PYTHONPATH=os.getcwd()))
    mark = f"RLSIFT_TEST_CHILD={log}"
    wait_until(lambda: log.exists() and "1" in log.read_text(), "word of the child")
    assert len(processes_marked(mark)) == 1
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: processes_marked(mark) == [], "end of the child")
