"""Enter: namespaces of one's own, a root with no files but those named, read-only, and a small empty /tmp."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from .linux import PR_SET_PDEATHSIG, call, prctl

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MS_RELATIME = 1 << 21
ST_RELATIME = 4096
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048  # nosuid, nodev, noexec, noatime, nodiratime: locked in a user namespace
MNT_DETACH = 2

INNER_ID = 1000
# It always exists, and nothing that is to be readable lies under it.
NEW_ROOT = b"/proc"


def enter(*, user_namespace: bool, readable: Iterable[str], tmp_bytes: int) -> None:
    """Returns in process 1 of the sandbox. The calling process waits for it, and ends with it.

    OSError, naming the call, where this machine does not allow it.
    """
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", flags | (CLONE_NEWUSER if user_namespace else 0))
    if user_namespace:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{INNER_ID} {uid} 1")
        _write("/proc/self/gid_map", f"{INNER_ID} {gid} 1")
    _change_root(readable, tmp_bytes)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # kill(0) reaches a process group across namespaces.
    os.setsid()


def _change_root(readable: Iterable[str], tmp_bytes: int) -> None:
    _mount(None, b"/", None, MS_REC | MS_PRIVATE)
    _mount(b"tmpfs", NEW_ROOT, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755,size=1m")
    for path in readable:
        target = NEW_ROOT + path.encode()
        os.makedirs(target)
        _mount(path.encode(), target, None, MS_BIND)
        found = os.statvfs(target).f_flag
        kept = found & KEPT_FLAGS | (MS_RELATIME if found & ST_RELATIME else 0)
        _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)
    os.mkdir(NEW_ROOT + b"/tmp")
    _mount(b"tmpfs", NEW_ROOT + b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={tmp_bytes}".encode())
    _mount(None, NEW_ROOT, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(NEW_ROOT)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/tmp")


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    try:
        call("mount", source, target, kind, flags, options)
    except OSError as error:
        raise OSError(error.errno, f"mounting {(source or target).decode()}: {os.strerror(error.errno or 0)}") from None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
