"""The ways to a sandbox, best first, and how each starts a supervisor inside of one.

Bubblewrap makes a sandbox around a new process, so each program has a Python to wait for. The other ways lead through
calls of our own, which a process forked from a Python that is there already can make as well: that one is kept warm.
"""

from __future__ import annotations

import array
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, Literal, get_args

from pipeline_lib.rewards.sandbox.limits import Limits

Way = Literal["bwrap", "root", "user_namespace"]
WAYS: tuple[Way, ...] = get_args(Way)

PYTHON = os.path.realpath(sys.executable)
INSIDE = Path(__file__).parent / "inside"
BOOT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from inside.{module} import main
del sys.path[0]
main(json.loads(sys.argv[2]))
"""
FLAGS = ("-I", "-S", "-X", "utf8", "-c")
# For root, bubblewrap too must run as somebody whose number of threads the kernel limits.
NOBODY = 65534


class Supervisor:
    """A supervisor in its sandbox. `requests` and `reports` are our ends of its pipes."""

    def __init__(self, requests: int, reports: int, pidfd: int, process: Popen[bytes] | None = None) -> None:
        self.requests, self.reports = requests, reports
        self._pidfd, self._process = pidfd, process

    def last_words(self) -> str:
        """Of one that has ended, as far as it could still speak."""
        if self._process is None:
            return "without a word"
        _, errors = self._process.communicate()
        return _last_line(errors) or f"exit code {self._process.returncode}"

    def close(self, patience: float) -> None:
        """An idle supervisor ends when its requests do; a busy one is killed, and all below it with it."""
        os.close(self.requests)
        if not self._ends(patience):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._ends(None)
        if self._process is not None:
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
        os.close(self._pidfd)
        os.close(self.reports)

    def _ends(self, seconds: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._pidfd, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))


class Launcher:
    """Starts supervisors one way, without this process's environment, files or descriptors; they die with it.

    Threads may share it. After a fork of this process its child needs one of its own.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        self._server: _Server | None = None
        self._lock = threading.Lock()

    def start(self, limits: Limits) -> Supervisor:
        """OSError, in words, where that fails."""
        settings = {"way": self._way, "readable": readable_directories(), "limits": asdict(limits)}
        if self._way == "bwrap":
            return _start_in_bwrap(settings)
        with self._lock:
            if self._server is None or not self._server.runs():
                self.close()
                self._server = _Server()
            return self._server.start(settings)

    def close(self) -> None:
        """End the warm parent, and with it every sandbox that it has made."""
        if self._server is not None:
            self._server.close()
            self._server = None


class _Server:
    """A warm parent, started here; see `inside/server.py`."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = json.dumps({"parent": os.getpid()})
        command = [PYTHON, *FLAGS, BOOT.format(module="server"), str(INSIDE.parent), settings]
        with closing(theirs):
            self._process = Popen(command, stdin=theirs.fileno(), stdout=DEVNULL, stderr=PIPE, env={}, cwd="/")

    def runs(self) -> bool:
        return self._process.poll() is None

    def start(self, settings: dict[str, Any]) -> Supervisor:
        requests_out, requests_in = os.pipe()
        reports_out, reports_in = os.pipe()
        try:
            pidfd = self._ask(json.dumps(settings).encode(), [requests_out, reports_in])
        except OSError:
            os.close(requests_in)
            os.close(reports_out)
            raise
        finally:
            os.close(requests_out)
            os.close(reports_in)
        return Supervisor(requests_in, reports_out, pidfd)

    def close(self) -> None:
        self._control.close()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _ask(self, message: bytes, fds: list[int]) -> int:
        """The pidfd of a new child that has these descriptors."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            _, ancillary, _, _ = self._control.recvmsg(
                1, socket.CMSG_SPACE(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
            )
            if ancillary:
                return array.array("i", ancillary[0][2])[0]
        _, errors = self._process.communicate()
        raise OSError(f"the warm parent of the sandboxes has ended: {_last_line(errors) or self._process.returncode}")


def obstacle(way: Way) -> str | None:
    """What this way lacks at first sight."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if way == "bwrap" and shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    if way == "root" and os.geteuid() != 0:
        return "this is not root"
    return None


def _start_in_bwrap(settings: dict[str, Any]) -> Supervisor:
    as_nobody = os.geteuid() == 0
    process = Popen(
        _bwrap_command(settings),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={},
        cwd="/",
        user=NOBODY if as_nobody else None,
        group=NOBODY if as_nobody else None,
        extra_groups=[] if as_nobody else None,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        requests, reports = os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno())
    # `communicate` would look into them.
    process.stdin = process.stdout = None
    return Supervisor(requests, reports, os.pidfd_open(process.pid), process)


def _bwrap_command(settings: dict[str, Any]) -> list[str]:
    binds = [("--ro-bind", path, path) for path in (*settings["readable"], PYTHON)]
    return [
        *(
            shutil.which("bwrap") or "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--as-pid-1",
            "--new-session",
            "--cap-drop",
            "ALL",
        ),
        *("--uid", "1000", "--gid", "1000"),
        *(word for bind in binds for word in bind),
        *("--ro-bind", str(INSIDE), "/inside", "--dev-bind", "/dev/null", "/dev/null"),
        *("--size", str(settings["limits"]["file_mb"] * 2**20), "--tmpfs", "/tmp"),
        *("--remount-ro", "/", "--chdir", "/tmp"),
        *("--", PYTHON, *FLAGS, BOOT.format(module="supervisor"), "/", json.dumps(settings)),
    ]


def readable_directories() -> list[str]:
    """Python's standard library and the system's shared libraries, none inside of another."""
    wanted = [os.path.join(sys.base_prefix, name) for name in ("lib", sys.platlibdir)]
    wanted += ["/lib", "/lib64", "/usr/lib", "/usr/lib64"]
    found = sorted({os.path.abspath(path) for path in wanted if os.path.isdir(path)}, key=len)
    return [path for i, path in enumerate(found) if not any(path.startswith(f"{other}/") for other in found[:i])]


def _last_line(errors: bytes | None) -> str:
    lines = (errors or b"").decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
