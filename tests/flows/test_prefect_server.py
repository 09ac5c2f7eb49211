"""Where the server of a run from the shell lives, and that its death needs nobody's care."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from flow_cases import environment, processes_marked, rlsift, wait_until, write_config

from flows.prefect_server import LocalServer, _home_of_its_own, free_port
from tasks.errors import ServerGone, StepFailed


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


def test_a_server_that_does_not_answer_is_told_of_in_words(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/api"
    answer = rlsift("run", write_config(tmp_path), PREFECT_API_URL=nobody, PREFECT_CLIENT_MAX_RETRIES="0")
    assert answer.returncode == 1
    assert f"error: Prefect's server at {nobody.removesuffix('/api')} does not answer" in answer.stderr
    assert "the same command goes on from here" in answer.stderr and "Traceback" not in answer.stderr


class Refuses(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401)


def test_a_server_that_refuses_is_not_gone_and_what_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = StepFailed("out of memory")
    with HTTPServer(("127.0.0.1", 0), Refuses) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{refusing.server_port}/api/accounts/a/workspaces/b"
        monkeypatch.setattr(os, "environ", {"PREFECT_API_URL": url})
        server = LocalServer(tmp_path)
        server.raise_if_gone(failed)
        refusing.shutdown()
    with pytest.raises(ServerGone, match=r"does not answer.*out of memory"):
        server.raise_if_gone(failed)


LOSES_ITS_SERVER = """
import sys
import time
from pathlib import Path
from flows import cli
from flows.commands import run
from flows.prefect_server import LocalServer

def lose_the_server(config, *consoles):
    server = LocalServer(Path(config.root))
    server.start()
    server.wait()
    from prefect import flow
    from prefect.events import emit_event

    @flow
    def tells_of_things():
        emit_event("event.first", {"prefect.resource.id": "rlsift.test"})
        time.sleep(3)  # Prefect connects, and will want to connect again
        server._server.wait(0)  # not long: it is killed
        for i in range(5):
            emit_event(f"event.{i}", {"prefect.resource.id": "rlsift.test"})

    try:
        tells_of_things()
    except Exception as error:
        server.raise_if_gone(error)
        raise

run.run_curriculum = lose_the_server
sys.argv = ["rlsift", "run", sys.argv[1]]
cli.main()
"""


def test_nobody_waits_at_the_end_for_a_server_that_is_gone(tmp_path: Path) -> None:
    """Prefect would try for a minute to tell it of each event, and say how many are left."""
    answer = subprocess.run(
        [sys.executable, "-c", LOSES_ITS_SERVER, str(write_config(tmp_path))],
        env=environment(PYTHONPATH=os.getcwd(), PREFECT_CLIENT_MAX_RETRIES="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1 and "error: Prefect's own server has ended" in answer.stderr, answer.stderr
    assert "Still processing items" not in answer.stderr


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
