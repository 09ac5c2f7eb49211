"""The machine that a benchmark ran on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
