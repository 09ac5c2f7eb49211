"""Process 1 of a sandbox: runs one program, each test in a process of its own, and reports what came of it.

It is out of the program's reach: another process, which the filter lets nobody trace and the namespace nobody kill.
It never knows what a right answer is, except that of a check, which it reads after the program's process was split off.
Requests come by one pipe, reports go by another; see `serve_requests`.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from . import program, wire
from .confine import confine
from .linux import PR_SET_PDEATHSIG, prctl
from .namespaces import enter

# What programs import most often costs a child nothing when it is loaded here.
WARM = "bisect collections functools heapq itertools math operator re typing"
CHUNK = 2**16
# Above the descriptors that a supervisor, or the server that forked it, ever has open.
MAX_FD = 256
# Root's sandboxes take a user each, far from those that people and services have: the kernel counts threads by user.
FIRST_UID = 0x70000000

Report = dict[str, Any]


class Pipes(NamedTuple):
    """Descriptors of a supervisor; `null` is /dev/null."""

    requests: int
    reports: int
    null: int


def main(settings: dict[str, Any]) -> None:
    """In a sandbox that was made for it alone, with its requests and reports as standard input and output."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    null = warm_up()
    pipes = Pipes(os.dup(0), os.dup(1), null)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    gc.freeze()
    supervise(settings, pipes)


def warm_up() -> int:
    """Load what programs need, and forget where this process came from; returns a descriptor of /dev/null."""
    for name in WARM.split():
        __import__(name)
    # Programs use these two, which only the module `site`, left out here, defines.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    sys.argv = ["program"]
    os.environ.clear()
    return os.open("/dev/null", os.O_RDWR)


def supervise(settings: dict[str, Any], pipes: Pipes) -> NoReturn:
    """Enter the sandbox, if the way there leads through this process, and serve until there are no more requests.

    settings: as `launch` writes them.
    """
    # Signals from its own namespace reach process 1 only where it has a handler, as Python has for this one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    limits, way = settings["limits"], settings["way"]
    uid = FIRST_UID + os.getpid() if way == "root" else None
    if way != "bwrap":
        try:
            enter(
                user_namespace=way == "user_namespace",
                readable=settings["readable"],
                tmp_bytes=int(limits["file_mb"]) * 2**20,
            )
        except OSError as error:
            wire.send(pipes.reports, {"obstacle": str(error)})
            os._exit(0)
    wire.send(pipes.reports, {"obstacle": None})
    Supervisor(limits, uid, pipes.null).serve_requests(pipes.requests, pipes.reports)
    os._exit(0)  # an interpreter that is taken apart costs as much as a few tests


def clean_tmp() -> None:
    """Empty /tmp of whatever the last test left there: it has ended, so that nothing changes meanwhile.

    A tree may be deeper than any path or recursion reaches, so directories are moved up before they are emptied.
    """
    os.chmod(b"/tmp", 0o1777)
    while names := _some_of(b"/tmp"):
        for name in names:
            path = b"/tmp/" + name
            if not _is_directory(path):
                os.unlink(path)
                continue
            while inner := _some_of(path):
                for below in inner:
                    if _is_directory(path + b"/" + below):
                        os.rename(path + b"/" + below, b"/tmp/" + os.urandom(16).hex().encode())
                    else:
                        os.unlink(path + b"/" + below)
            os.rmdir(path)


def _is_directory(path: bytes) -> bool:
    """With the right to empty and to move it, where it is one."""
    found = stat.S_ISDIR(os.lstat(path).st_mode)
    if found:
        os.chmod(path, 0o700)
    return found


def _some_of(directory: bytes) -> list[bytes]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, CHUNK)]


class Supervisor:
    def __init__(self, limits: dict[str, float], uid: int | None, null: int) -> None:
        self.limits = limits
        self.uid = uid
        self.null = null

    def serve_requests(self, requests: int, reports: int) -> None:
        """`{"program": ...}` with `stdin`; or with `function` and `args`; or alone, then a `{"checks": ...}`."""
        while True:
            try:
                request = wire.receive(requests)
            except EOFError:
                return
            clean_tmp()
            if "stdin" in request:
                report = self.run_script(request["program"], request["stdin"].encode(errors="replace"))
            elif "function" in request:
                report = self.call(request["program"], request["function"], request["args"])
            else:
                report = self.check(request["program"], lambda: str(wire.receive(requests)["checks"]))
            wire.send(reports, report)

    def run_script(self, source: str, stdin: bytes) -> Report:
        """status, and the program's standard output as text."""
        text = os.memfd_create("stdin")
        with open(text, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(text, 0, os.SEEK_SET)
        output, write_end = os.pipe()

        def child() -> None:
            os.dup2(text, 0)
            os.dup2(write_end, 1)
            self._confine(keep=())
            program.run(source)

        pid = self._fork(child)
        os.close(text)
        os.close(write_end)
        status, data = self._watch(pid, output)
        return {"status": status, "output": data.decode(errors="replace")}

    def call(self, source: str, name: str, args: list[Any]) -> Report:
        """status, and the encoded value of a function of the program, where there is one."""
        result, write_end = os.pipe()

        def child() -> None:
            self._confine(keep=(write_end,))
            program.call_once(source, name, args, write_end)

        pid = self._fork(child)
        os.close(write_end)
        status, data = self._watch(pid, result)
        return {"status": status, "value": data[8:].decode(errors="replace")}

    def check(self, source: str, read_checks: Callable[[], str]) -> Report:
        """status of the checks, run against a program that was started before they were read."""
        request_out, request_in = os.pipe()
        answer_out, answer_in = os.pipe()

        def server() -> None:
            self._confine(keep=(request_out, answer_in))
            program.serve(source, request_out, answer_in)

        server_pid = self._fork(server)
        checks = read_checks()

        def checker() -> None:
            self._confine(keep=(request_in, answer_out))
            program.check(checks, request_in, answer_out)

        pid = self._fork(checker)
        for fd in (request_out, request_in, answer_out, answer_in):
            os.close(fd)
        status, _ = self._watch(pid, None)
        os.kill(server_pid, signal.SIGKILL)
        _, server_status = os.waitpid(server_pid, 0)
        out_of_time = status == "failed" and _ended_by(server_status, signal.SIGXCPU)
        return {"status": "timeout" if out_of_time else status}

    def _confine(self, *, keep: tuple[int, ...]) -> None:
        os.setsid()
        fds = sorted({2, *keep})
        for low, high in zip(fds, [*fds[1:], MAX_FD], strict=True):
            os.closerange(low + 1, high)
        confine(self.limits, self.uid)

    def _fork(self, child: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            program.run_to_end(child)
        return pid

    def _watch(self, pid: int, output: int | None) -> tuple[str, bytes]:
        """Wait for a child, reading its output: exited, failed, timeout or output (too much of it)."""
        data = bytearray()
        limit = self.limits["output_mb"] * 2**20
        deadline = time.monotonic() + self.limits["wall_seconds"]
        ended = os.pidfd_open(pid)
        waiting = select.poll()
        for fd in (ended, output):
            if fd is not None:
                waiting.register(fd, select.POLLIN)
        status = None
        while status is None:
            events = dict(waiting.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if output in events:
                chunk = os.read(output, CHUNK)
                data += chunk
                if not chunk:
                    waiting.unregister(output)
                if len(data) > limit:
                    status = "output"
            elif ended in events:
                break
            elif not events:
                status = "timeout"
        if status is not None:
            os.kill(pid, signal.SIGKILL)
        _, wait_status = os.waitpid(pid, 0)
        for fd in (ended, output):
            if fd is not None:
                os.close(fd)
        if status is None:
            out_of_time = _ended_by(wait_status, signal.SIGXCPU, signal.SIGKILL)
            status = "exited" if wait_status == 0 else "timeout" if out_of_time else "failed"
        return status, bytes(data)


def _ended_by(wait_status: int, *signals: signal.Signals) -> bool:
    return os.WIFSIGNALED(wait_status) and os.WTERMSIG(wait_status) in signals
