"""Sandbox: untrusted Python programs, run where they can neither reach nor forge anything.

`find_way` says how on this machine, after trying to break out; `Session` runs the tests of one program, in a sandbox
that a `Launcher` makes.
"""

from __future__ import annotations

from pipeline_lib.rewards.sandbox.launch import Launcher
from pipeline_lib.rewards.sandbox.limits import Limits
from pipeline_lib.rewards.sandbox.probe import NoSandbox, find_way
from pipeline_lib.rewards.sandbox.session import OutOfTime, SandboxError, Session, Status

__all__ = ["Launcher", "Limits", "NoSandbox", "OutOfTime", "SandboxError", "Session", "Status", "find_way"]
