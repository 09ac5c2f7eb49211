"""The warm parent of sandboxes: a Python with everything loaded, which forks one supervisor after the other.

Nothing that a program does reaches it. It runs no program and reads nothing of one, neither source nor result: those
pass between a supervisor and the process that asked for it, through pipes of their own. It hears from that process
alone, over a socket that each child closes first. A child enters namespaces of its own before it reads its first
request, and shares no writable memory: what a program changes are its own copies of these pages.
"""

from __future__ import annotations

import array
import gc
import json
import os
import select
import signal
import socket
from typing import Any

from .linux import PR_SET_PDEATHSIG, prctl
from .supervisor import MAX_FD, Pipes, supervise, warm_up

MAX_REQUEST = 2**16


def main(settings: dict[str, Any]) -> None:
    """settings: the id of the process that it serves, and dies with. Standard input is the socket."""
    parent = os.pidfd_open(settings["parent"])
    if os.getppid() != settings["parent"]:
        os._exit(1)
    os.setsid()  # Ctrl-C is for the process that it serves
    control = socket.socket(fileno=os.dup(0))
    null = warm_up()
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    gc.freeze()
    serve(control, parent, null)
    os._exit(0)


def serve(control: socket.socket, parent: int, null: int) -> None:
    """Requests are the limits and the way to confine, with the two ends of pipes; the answer is a pidfd of the child.

    Returns when the other end is closed, or its process has ended: every child ends with this process.
    """
    waiting = select.poll()
    for fd in (control.fileno(), parent):
        waiting.register(fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in waiting.poll()]
        _reap()
        if parent in ready:
            return
        message, fds = _receive(control)
        if not message:
            return
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            control.detach()
            _become_supervisor(json.loads(message), fds, server, keep=null)
        child = os.pidfd_open(pid)
        for fd in fds:
            os.close(fd)
        control.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [child]))])
        os.close(child)


def _become_supervisor(settings: dict[str, Any], fds: list[int], server: int, *, keep: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    # Socket and pidfd of the server among them: a child has nothing of it but a copy of its memory.
    kept = sorted({2, keep, *fds})
    for low, high in zip(kept, [*kept[1:], MAX_FD], strict=True):
        os.closerange(low + 1, high)
    try:
        supervise(settings, Pipes(requests=fds[0], reports=fds[1], null=keep))
    finally:
        os._exit(1)  # never back into the server


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    message, ancillary, _, _ = control.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(2 * array.array("i").itemsize))
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data)
    return message, fds.tolist()


def _reap() -> None:
    """Children that have ended; who asked for them knows by their pidfd."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
