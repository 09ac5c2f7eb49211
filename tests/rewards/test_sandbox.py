"""Untrusted programs: what they cannot do to the machine, what they cannot see, and that they end."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest
from hostile import HARMFUL, LITTER, LOUD, SLOW, SNOOPS
from sandbox_cases import QUICK, all_gone, descendants, run

from pipeline_lib.rewards import get_verifier, sandbox
from pipeline_lib.rewards.sandbox import Limits, NoSandbox, OutOfTime, SandboxError, Session, find_way, launch, probe


def cases(programs: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("source", programs.values(), ids=programs.keys())


def test_a_program_reads_and_prints() -> None:
    assert run("name = input()\nprint(f'hello {name} é')", "wörld\n") == ("exited", "hello wörld é\n")


def test_a_program_may_use_threads_files_and_the_standard_library() -> None:
    source = """
import sqlite3, tempfile, threading, zlib
from dataclasses import dataclass

@dataclass
class Point:
    x: int

def work():
    with tempfile.TemporaryFile("w+") as file:
        file.write(str(Point(3))); file.seek(0); print(file.read())

threading.stack_size(2**26)
threading.Thread(target=work).start()
"""
    assert run(source) == ("exited", "Point(x=3)\n")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("raise SystemExit", "exited"),
        ("raise SystemExit(3)", "failed"),
        ("1/0", "failed"),
        ("not Python", "failed"),
        ("\0", "failed"),
        ("", "exited"),
    ],
)
def test_how_a_program_ends(source: str, status: str) -> None:
    assert run(source) == (status, "")


@cases(HARMFUL)
def test_a_harmful_program_fails_and_its_supervisor_goes_on(source: str) -> None:
    limits, calm = dataclasses.replace(QUICK, wall_seconds=3), "if not input(): raise SystemExit\n"
    before = len(os.listdir("/proc"))
    with Session(find_way(), limits, calm + source) as session:
        assert session.run("go\n")[0] in ("failed", "timeout")
        assert len(os.listdir("/proc")) < before + 50
        assert session.run("\n") == ("exited", "")


@cases(SLOW)
def test_a_slow_program_is_ended(source: str) -> None:
    assert run(source) == ("timeout", "")


def test_processor_time_has_a_limit_of_its_own() -> None:
    assert run("while True: pass", limits=dataclasses.replace(QUICK, wall_seconds=300)) == ("timeout", "")


@cases(LOUD)
def test_too_much_output_ends_a_program(source: str) -> None:
    status, output = run(source, limits=dataclasses.replace(QUICK, wall_seconds=30, cpu_seconds=30))
    assert status == "output"
    assert len(output) < 2 * QUICK.output_mb * 2**20


@cases(SNOOPS)
def test_a_program_sees_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "secret")
    status, output = run(source, limits=dataclasses.replace(QUICK, cpu_seconds=10, wall_seconds=30))
    assert status == "exited"
    assert output.strip() in ("", "{}", "False", "None None None")


def test_tests_of_one_program_share_nothing() -> None:
    source = "import sys\nprint(getattr(sys, 'mark', 'clean'))\nsys.mark = 'dirty'"
    with Session(find_way(), QUICK, source) as session:
        assert session.run("") == session.run("") == ("exited", "clean\n")


@cases(LITTER)
def test_each_test_starts_in_an_empty_tmp(source: str) -> None:
    look = "import os\nif input() == 'look': print(os.getcwd(), os.listdir()); open('new', 'w').close(); exit()\n"
    with Session(find_way(), dataclasses.replace(QUICK, cpu_seconds=10, wall_seconds=30), look + source) as session:
        assert session.run("look\n") == ("exited", "/tmp []\n")
        assert session.run("litter\n") == ("exited", "")
        assert session.run("look\n") == ("exited", "/tmp []\n")


def test_the_time_of_all_tests_has_a_limit() -> None:
    limits = dataclasses.replace(QUICK, wall_seconds=60, total_seconds=2)
    with pytest.raises(OutOfTime), Session(find_way(), limits, "import time\ntime.sleep(1000)") as session:
        session.run("")


def test_nothing_is_left_when_a_session_ends() -> None:
    others = descendants(os.getpid())  # of the tests before this one
    with Session(find_way(), Limits(wall_seconds=600), "import time\ntime.sleep(600)") as session:
        below = descendants(os.getpid()) - others
        assert len(below) >= 2
        with pytest.raises(TimeoutError):
            alarm(session)
    assert all_gone(below)


def alarm(session: Session) -> None:
    """Interrupt a running test."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        session.run("")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_a_sandbox_dies_with_the_process_that_has_it() -> None:
    path = os.path.join(os.path.dirname(__file__), "sandbox_cases.py")
    with subprocess.Popen([sys.executable, path], env={**os.environ, "PYTHONPATH": os.getcwd()}, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        while len(below := descendants(process.pid)) < 3:
            time.sleep(0.05)
        process.kill()
    assert all_gone(below)


def test_a_way_with_a_hole_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = launch.readable_directories()
    monkeypatch.setattr(launch, "readable_directories", lambda: [*honest, "/etc"])
    assert probe.weakness(find_way()) == "a program in it could read /etc, see /etc"


@pytest.mark.skipif(os.geteuid() != 0, reason="the hole is root's: the kernel does not count its threads")
def test_a_hole_of_the_machine_itself_is_found() -> None:
    assert probe.weakness("user_namespace") is not None


def test_a_way_that_does_not_start_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "readable_directories", lambda: ["/nowhere/at/all"])
    way = find_way()
    assert "does not start" in (probe.weakness(way) or "")
    with pytest.raises(SandboxError, match="/nowhere/at/all"), Session(way, QUICK, ""):
        pass


def test_where_no_sandbox_holds_the_verifier_refuses_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "obstacle", lambda way: f"{way} is broken")
    probe.find_way.cache_clear()
    try:
        with pytest.raises(
            NoSandbox, match=r"bwrap is broken.*root is broken.*user_namespace is broken.*install bubble"
        ):
            sandbox.find_way()
        from pipeline_lib import rewards

        rewards._load.cache_clear()
        with pytest.raises(ValueError, match="programs cannot be graded here"):
            get_verifier("code")
    finally:
        probe.find_way.cache_clear()
