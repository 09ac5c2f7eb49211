"""Which way to a sandbox holds on this machine, found by trying to break out of it."""

from __future__ import annotations

import json
from functools import lru_cache

from pipeline_lib.rewards.sandbox.launch import INSIDE, PYTHON, WAYS, Way, obstacle, readable_directories
from pipeline_lib.rewards.sandbox.limits import Limits
from pipeline_lib.rewards.sandbox.session import OutOfTime, SandboxError, Session

LIMITS = Limits(memory_mb=512, file_mb=2, threads=12)
REMEDY = (
    "install bubblewrap (bwrap), or run as root with CAP_SYS_ADMIN, or allow unprivileged user namespaces "
    "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; "
    "in a container --security-opt seccomp=unconfined)"
)


class NoSandbox(ValueError):
    """No way to a sandbox holds on this machine; the message says what each of them lacks."""


@lru_cache
def find_way() -> Way:
    """The first way that holds; NoSandbox where none does. Tried once a process, in about a second."""
    found: dict[Way, str] = {}
    for way in WAYS:
        found[way] = obstacle(way) or weakness(way) or ""
        if not found[way]:
            return way
    reasons = "; ".join(f"{way}: {reason}" for way, reason in found.items())
    raise NoSandbox(f"programs cannot be graded here, since no sandbox would hold them ({reasons}); {REMEDY}")


def weakness(way: Way) -> str | None:
    """Why not to trust this way here: it does not start, or a program in it can do what it must not."""
    source = (INSIDE / "holes.py").read_text()
    allowed = {
        "memory_mb": LIMITS.memory_mb,
        "file_mb": LIMITS.file_mb,
        "threads": LIMITS.threads,
        "readable": [*readable_directories(), PYTHON],
    }
    try:
        with Session(way, LIMITS, source) as session:
            status, output = session.run(json.dumps(allowed))
    except (SandboxError, OutOfTime) as error:
        return f"does not start ({error or 'out of time'})"
    if status != "exited":
        return f"the program that tries it ended as {status}"
    holes = json.loads(output)
    return f"a program in it could {', '.join(holes)}" if holes else None
