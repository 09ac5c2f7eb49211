"""The ways to start a supervisor inside of a sandbox, best first."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Literal, get_args

from pipeline_lib.rewards.sandbox.limits import Limits

Way = Literal["bwrap", "root", "user_namespace"]
WAYS: tuple[Way, ...] = get_args(Way)

PYTHON = os.path.realpath(sys.executable)
INSIDE = Path(__file__).parent / "inside"
BOOT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from inside.supervisor import main
del sys.path[0]
main(json.loads(sys.argv[2]))
"""
# For root, bubblewrap too must run as somebody whose number of threads the kernel limits.
NOBODY = 65534


def obstacle(way: Way) -> str | None:
    """What this way lacks at first sight."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if way == "bwrap" and shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    if way == "root" and os.geteuid() != 0:
        return "this is not root"
    return None


def start(way: Way, limits: Limits) -> Popen[bytes]:
    """A supervisor, without this process's environment, files or descriptors; it dies with this process."""
    command, as_nobody = _command(way, limits), way == "bwrap" and os.geteuid() == 0
    return Popen(
        command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={},
        cwd="/",
        user=NOBODY if as_nobody else None,
        group=NOBODY if as_nobody else None,
        extra_groups=[] if as_nobody else None,
    )


def _command(way: Way, limits: Limits) -> list[str]:
    settings = {
        "way": way,
        "parent": None if way == "bwrap" else os.getpid(),
        "readable": readable_directories(),
        "limits": asdict(limits),
    }
    flags = ["-I", "-S", "-X", "utf8", "-c", BOOT]
    if way != "bwrap":
        return [PYTHON, *flags, str(INSIDE.parent), json.dumps(settings)]
    binds = [("--ro-bind", path, path) for path in (*readable_directories(), PYTHON)]
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
        *("--size", str(limits.file_mb * 2**20), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"),
        *("--", PYTHON, *flags, "/", json.dumps(settings)),
    ]


def readable_directories() -> list[str]:
    """Python's standard library and the system's shared libraries, none inside of another."""
    wanted = [os.path.join(sys.base_prefix, name) for name in ("lib", sys.platlibdir)]
    wanted += ["/lib", "/lib64", "/usr/lib", "/usr/lib64"]
    found = sorted({os.path.abspath(path) for path in wanted if os.path.isdir(path)}, key=len)
    return [path for i, path in enumerate(found) if not any(path.startswith(f"{other}/") for other in found[:i])]
