"""Sent into a sandbox as an untrusted program: tries what must not be possible there, and prints what was.

Its input, in JSON, is what it may have: megabytes of memory, of a file and of /tmp, the number of threads, and the
directories it may read.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

MEGABYTE = 2**20

holes: list[str] = []


@contextmanager
def impossible(what: str) -> Iterator[None]:
    """Its body must raise."""
    try:
        yield
    except (OSError, MemoryError, ValueError, RuntimeError):
        return
    holes.append(what)


def start_threads(count: int) -> None:
    started, end = [], threading.Event()
    try:
        for _ in range(count):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    finally:
        end.set()
        for thread in started:
            thread.join()


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def write(path: str, megabytes: int) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(megabytes):
            if file.write(bytes(MEGABYTE)) < MEGABYTE:
                raise OSError("a short write")


def fill(megabytes: int) -> None:
    """Several files, each of a size that is allowed."""
    for number in range(megabytes):
        write(f"/tmp/part{number}", 1)


def raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard + 1))


def strange_paths(readable: list[str], directory: str = "/") -> Iterator[str]:
    """What is there beside the readable directories and those that lead to them."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if path in readable:
            continue
        if any(other.startswith(f"{path}/") for other in readable):
            yield from strange_paths(readable, path)
        else:
            yield path


def main() -> None:
    allowed = json.loads(input())
    memory, file_mb, threads = allowed["memory_mb"], allowed["file_mb"], allowed["threads"]
    attempts: dict[str, Callable[[], Any]] = {
        "start a process": fork,
        "start a program": lambda: os.posix_spawn("/usr/bin/true", ["true"], {}),
        f"start {threads} threads": lambda: start_threads(threads),
        f"have {memory} MB of memory": lambda: bytearray(memory * MEGABYTE),
        "raise its limits": raise_limit,
        "open a socket": lambda: socket.socket(socket.AF_INET),
        "open a local socket": lambda: socket.socket(socket.AF_UNIX),
        f"write a file of {file_mb + 1} MB": lambda: write("/tmp/large", file_mb + 1),
        f"write {file_mb + 1} MB in several files": lambda: fill(file_mb + 1),
        "read /proc": lambda: os.open("/proc/self/environ", os.O_RDONLY),
        "read /etc": lambda: os.listdir("/etc"),
        "become root": lambda: os.setuid(0),
        "see other processes": lambda: os.kill(2**15, 0),
    }
    for directory in ("/", "/dev", "/dev/shm", "/inside", *allowed["readable"]):
        attempts[f"write in {directory}"] = partial(write, os.path.join(directory, "outside"), 0)
    for what, attempt in attempts.items():
        with impossible(what):
            attempt()
        for name in os.listdir("/tmp"):
            os.unlink(f"/tmp/{name}")
    if os.getuid() == 0:
        holes.append("be root")
    holes.extend(
        f"see {path}" for path in sorted(strange_paths([*allowed["readable"], "/tmp", "/dev/null", "/inside"]))
    )
    holes.extend(f"read the variable {name}" for name in sorted(os.environ))
    start_threads(threads // 2)
    write("/tmp/small", 1)
    print(json.dumps(holes))


if __name__ == "__main__":
    main()
