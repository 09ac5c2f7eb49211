"""What another process writes into its log file, carried into the log of the flow run as it comes."""

from __future__ import annotations

import logging
import time
from pathlib import Path

LOOK_SECONDS = 2.0
LINES_A_LOOK = 20
CHARACTERS_A_LINE = 500
BYTES_A_LOOK = 65_536

logger = logging.getLogger("rlsift.trainer")


class LogStream:
    """Whole lines that are added to `path` from now on. Of a flood the newest are told, and how many were not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0
        self._looked_at = 0.0

    def look(self, *, last: bool = False) -> None:
        """Log what is new. Looks at most every LOOK_SECONDS; the `last` look takes the end of an open line as well."""
        now = time.monotonic()
        if not last and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        with self._path.open("rb") as log:
            end = log.seek(0, 2)
            skipped = max(0, end - self._at - BYTES_A_LOOK)
            log.seek(self._at + skipped)
            new = log.read()
        if not last:
            new = new[: new.rfind(b"\n") + 1]
        self._at += skipped + len(new)
        lines = [line for line in map(_shown, new.split(b"\n")) if line]
        if skipped or len(lines) > LINES_A_LOOK:
            logger.info("… more output than is shown here; all of it is in %s", self._path)
        for line in lines[-LINES_A_LOOK:]:
            logger.info("%s", line)


def _shown(line: bytes) -> str:
    """As a terminal would leave it: what stands after the last carriage return."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace").rstrip()[:CHARACTERS_A_LINE]
