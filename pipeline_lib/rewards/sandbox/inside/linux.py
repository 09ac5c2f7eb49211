"""The few calls to the kernel that Python 3.11 has no function for."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: object) -> None:
    """Call a function of libc; OSError, naming it, where it fails."""
    if getattr(_libc, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def prctl(option: int, value: int, argument: object = 0) -> None:
    call("prctl", option, ctypes.c_ulong(value), argument, 0, 0)
