"""The warm parent of sandboxes: no program changes what the next one finds, and it lives as long as its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from influences import INFLUENCES, LOOK
from sandbox_cases import QUICK, all_gone, descendants

from pipeline_lib.rewards.sandbox import Launcher, SandboxError, Session, Status, find_way

pytestmark = pytest.mark.skipif(find_way() == "bwrap", reason="bubblewrap makes each sandbox around a new process")


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher(find_way())
    yield launcher
    launcher.close()


def run(launcher: Launcher, source: str, stdin: str = "") -> tuple[Status, str]:
    with Session(launcher, QUICK, source) as session:
        return session.run(stdin)


def parent_of(launcher: Launcher) -> int:
    assert launcher._server is not None
    return launcher._server._process.pid


@pytest.mark.parametrize("source", INFLUENCES.values(), ids=INFLUENCES.keys())
def test_a_program_leaves_nothing_for_the_next(launcher: Launcher, source: str) -> None:
    before = run(launcher, LOOK)
    assert before[0] == "exited" and '"tmp": []' in before[1]
    parent = parent_of(launcher)
    with suppress(SandboxError):  # its own supervisor may go down with it
        run(launcher, source)
    assert run(launcher, LOOK) == before
    assert parent_of(launcher) == parent


def test_the_warm_parent_shares_no_memory_that_can_be_written(launcher: Launcher) -> None:
    run(launcher, "print(1)")
    maps = Path(f"/proc/{parent_of(launcher)}/maps").read_text().splitlines()
    shared = [line for line in maps if line.split()[1][1] == "w" and line.split()[1][3] == "s"]
    assert maps and shared == []


def test_a_child_has_no_descriptor_of_the_warm_parent(launcher: Launcher) -> None:
    with Session(launcher, QUICK, "import sys\nsys.stdin.read()"):
        below = descendants(parent_of(launcher))
        [supervisor] = {pid for child in below for pid in descendants(child)}
        open_there = {os.readlink(path) for path in Path(f"/proc/{supervisor}/fd").iterdir()}
        pipes = {path for path in open_there if path.startswith("pipe:")}
        [rest] = open_there - pipes
        assert len(pipes) == 2 and rest.endswith("/null")  # requests and reports


def test_the_warm_parent_has_no_environment_and_no_file_of_its_process(launcher: Launcher) -> None:
    run(launcher, "print(1)")
    place = Path(f"/proc/{parent_of(launcher)}")
    assert place.joinpath("environ").read_bytes() == b""
    kinds = [os.readlink(path).partition(":")[0] for path in place.joinpath("fd").iterdir()]
    assert sorted(kinds) == ["/dev/null"] * 4 + ["anon_inode", "socket"]


def test_sandboxes_of_one_parent_do_not_meet(launcher: Launcher) -> None:
    source = """
import os, time
name = input()
open(f"/tmp/{name}", "w").close()
time.sleep(0.3)
print(os.getpid(), os.listdir("/tmp") == [name])
"""
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda name: run(launcher, source, name), ["a", "b", "c"]))
    assert len(set(found)) == 1
    assert found[0][0] == "exited" and found[0][1].endswith("True\n")


def test_a_parent_that_was_killed_is_replaced(launcher: Launcher) -> None:
    assert run(launcher, "print(1)") == ("exited", "1\n")
    killed = parent_of(launcher)
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    assert run(launcher, "print(2)") == ("exited", "2\n")
    assert parent_of(launcher) != killed


def test_it_outlives_the_thread_that_started_it() -> None:
    launcher = Launcher(find_way())
    thread = threading.Thread(target=run, args=(launcher, "print(1)"))
    thread.start()
    thread.join()
    started = parent_of(launcher)
    assert run(launcher, "print(2)") == ("exited", "2\n")
    assert parent_of(launcher) == started
    launcher.close()


def test_closing_ends_it_and_every_sandbox_below() -> None:
    others = descendants(os.getpid())
    launcher = Launcher(find_way())
    session = Session(launcher, QUICK, "import time\ntime.sleep(100)")
    below = descendants(os.getpid()) - others
    assert len(below) >= 2
    launcher.close()
    assert all_gone(below)
    session.close()


def test_an_idle_one_dies_with_its_process() -> None:
    script = (
        "import time\nfrom pipeline_lib.rewards.sandbox import Launcher, Limits, find_way\n"
        "launcher = Launcher(find_way())\nlauncher.start(Limits()).close(1)\nprint('idle', flush=True)\ntime.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"idle\n"
        below = descendants(process.pid)
        assert below
        process.kill()
    assert all_gone(below)
