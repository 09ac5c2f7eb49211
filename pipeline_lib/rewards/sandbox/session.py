"""A session with the supervisor of one sandbox: run the tests of one program, one after the other."""

from __future__ import annotations

import select
import time
from types import TracebackType
from typing import Any, Literal

from pipeline_lib.rewards.sandbox.inside import wire
from pipeline_lib.rewards.sandbox.launch import Launcher, Way
from pipeline_lib.rewards.sandbox.limits import Limits

Status = Literal["exited", "failed", "timeout", "output"]
"""exited: with code 0. failed: otherwise. timeout: out of time. output: printed more than it may."""

PATIENCE = 1.0
"""Seconds for a supervisor that has no more requests to end by itself."""


class SandboxError(RuntimeError):
    """The sandbox itself does not work, whatever the program."""


class OutOfTime(Exception):
    """All tests together took longer than `total_seconds`."""


class Session:
    """One program. Use as a context manager; leaving it ends every process of the sandbox.

    With a launcher its warm parent stays for the next session; with a way alone it is started for this one.
    Each method raises OutOfTime, and SandboxError where the sandbox breaks.
    """

    def __init__(self, sandboxes: Launcher | Way, limits: Limits, source: str) -> None:
        self._source = source
        self._deadline = time.monotonic() + limits.total_seconds
        launcher = sandboxes if isinstance(sandboxes, Launcher) else Launcher(sandboxes)
        self._own_launcher = None if launcher is sandboxes else launcher
        try:
            self._supervisor = launcher.start(limits)
        except OSError as error:
            if self._own_launcher is not None:
                launcher.close()
            raise SandboxError(str(error)) from None

    def __enter__(self) -> Session:
        try:
            if obstacle := self._receive()["obstacle"]:
                raise SandboxError(obstacle)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._supervisor.close(PATIENCE)
        if self._own_launcher is not None:
            self._own_launcher.close()

    def run(self, stdin: str) -> tuple[Status, str]:
        """Status and standard output of the program, run as a script."""
        report = self._ask({"program": self._source, "stdin": stdin})
        return report["status"], report["output"]

    def call(self, function: str, args: list[Any]) -> tuple[Status, str]:
        """Status, and the value of a function of the program as `wire.encode` writes it, in JSON.

        That text comes from the program, and may be anything.
        """
        report = self._ask({"program": self._source, "function": function, "args": args})
        return report["status"], report["value"]

    def check(self, checks: str) -> Status:
        """Status of checks, run in a process that the program cannot reach."""
        return self._ask({"program": self._source}, {"checks": checks})["status"]

    def _ask(self, *requests: dict[str, Any]) -> Any:
        for request in requests:
            try:
                wire.send(self._supervisor.requests, request)
            except BrokenPipeError:
                break  # what it said before it ended is still to be read
        return self._receive()

    def _receive(self) -> Any:
        reports, waiting = self._supervisor.reports, select.poll()
        waiting.register(reports, select.POLLIN)
        if not waiting.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            raise OutOfTime
        try:
            return wire.receive(reports)
        except EOFError:
            raise SandboxError(f"the sandbox ended by itself: {self._supervisor.last_words()}") from None
