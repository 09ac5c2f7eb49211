"""A filter of system calls: no new process or program, no socket, and no memory that the limits do not count.

Namespaces, an unprivileged user and resource limits are the walls; this closes what they leave ajar. A program may
start threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from .linux import PR_SET_SECCOMP, prctl

# Names, with the numbers on x86_64 and on aarch64 (None where there is no such call).
DENIED: dict[str, tuple[int, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "socket": (41, 198),
    # another process's memory and files
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    # memory and storage outside of RLIMIT_AS and /tmp
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # other namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    # parts of the kernel with a history of holes
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
}
CLONE: tuple[int, int] = (56, 220)
CLONE3 = 435
CLONE_THREAD = 0x00010000

# machine -> (position in the tables above, AUDIT_ARCH constant)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32_CALLS = 0x40000000

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
FILTER_MODE = 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def install() -> None:
    """Filter this process's calls for good; no_new_privs must be set. OSError where the kernel cannot."""
    program = filter_program(os.uname().machine)
    prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(_Program(len(program) // 8, program)))


def filter_program(machine: str) -> bytes:
    """The filter in classic BPF; OSError for a machine whose call numbers are not known here."""
    if machine not in MACHINES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for the machine {machine}, only {', '.join(MACHINES)}")
    column, architecture = MACHINES[machine]
    refuse = _instruction(RETURN, ERRNO | errno.EPERM)
    steps = [
        _instruction(LOAD, ARCHITECTURE),
        _instruction(JUMP_EQUAL, architecture, 1, 0),
        _instruction(RETURN, KILL),
        _instruction(LOAD, NUMBER),
        _instruction(JUMP_AT_LEAST, X32_CALLS, 0, 1),
        refuse,
    ]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            steps += [_instruction(JUMP_EQUAL, number, 0, 1), refuse]
    steps += [
        # The C library falls back to clone, whose flags a filter can see.
        _instruction(JUMP_EQUAL, CLONE3, 0, 1),
        _instruction(RETURN, ERRNO | errno.ENOSYS),
        _instruction(JUMP_EQUAL, CLONE[column], 0, 3),
        _instruction(LOAD, FIRST_ARGUMENT),
        _instruction(JUMP_ANY_BIT, CLONE_THREAD, 1, 0),
        refuse,
        _instruction(RETURN, ALLOW),
    ]
    return b"".join(steps)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
