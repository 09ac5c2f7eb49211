"""Confine: what a process gives up for good before it runs a program it does not trust."""

from __future__ import annotations

import ctypes
import math
import os
import resource

from . import seccomp
from .linux import PR_SET_NO_NEW_PRIVS, call, prctl

MAX_FILES = 64
CAPABILITY_VERSION = 0x20080522


def confine(limits: dict[str, float], uid: int | None) -> None:
    """Limits, an unprivileged user, no capability, the filter of system calls.

    uid: the user to become, for root; None where the namespace has made this process nobody already.
    """
    _limit(resource.RLIMIT_AS, int(limits["memory_mb"]) * 2**20)
    # A second later than SIGXCPU, which tells a timeout from other ends, comes SIGKILL.
    _limit(resource.RLIMIT_CPU, math.ceil(limits["cpu_seconds"]), grace=1)
    _limit(resource.RLIMIT_FSIZE, int(limits["file_mb"]) * 2**20)
    _limit(resource.RLIMIT_NPROC, int(limits["threads"]))
    _limit(resource.RLIMIT_NOFILE, MAX_FILES)
    _limit(resource.RLIMIT_CORE, 0)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install()


def _limit(kind: int, value: int, grace: int = 0) -> None:
    inherited = resource.getrlimit(kind)[1]
    hard = value + grace if inherited == resource.RLIM_INFINITY else min(value + grace, inherited)
    resource.setrlimit(kind, (min(value, hard), hard))
