"""A signal ends a process also where Python cannot act on it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from flow_cases import PATIENCE, environment, wait_until

COMPUTES = """
import hashlib, sys, time
from flows.stopping import end_soon_after_a_signal

end_soon_after_a_signal(lambda text: print(text, file=sys.stderr), grace_seconds=0.5)
try:
    print("ready", flush=True)
    if sys.argv[1] == "one call":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour at least, and no instruction of Python's
    else:
        time.sleep(1000)
except KeyboardInterrupt:
    sys.exit("stopped by Python itself")
"""


def cpu_ticks(pid: int) -> int:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("work", "said", "code"),
    [
        ("one call", "Stopped in the middle of a computation. The same command goes on from here.\n", 130),
        ("many calls", "stopped by Python itself\n", 1),
    ],
)
def test_a_signal_ends_the_process(how: signal.Signals, work: str, said: str, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMPUTES, work],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if work == "one call":
        before = cpu_ticks(process.pid)
        wait_until(lambda: cpu_ticks(process.pid) > before + 20, "time spent within the call")
    process.send_signal(how)
    assert process.communicate(timeout=PATIENCE)[1] == said
    assert process.returncode == code
