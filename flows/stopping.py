"""A run that is asked to stop ends soon, also in the middle of a computation that Python cannot interrupt."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

GRACE_SECONDS = 8.0


def end_soon_after_a_signal(say: Callable[[str], None], *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Let SIGTERM stop the run as Ctrl-C does; what has not ended by then is ended as by a kill, which loses no more.

    Python runs its handlers between two instructions, and one backward pass of a large policy is a single one. For the
    main thread, once.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's `&` had SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno())

    def watch() -> None:
        while told.recv(1)[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        time.sleep(grace_seconds)
        say("Stopped in the middle of a computation. The same command goes on from here.")
        tell.close()  # it is this thread's as well, so that nobody collects it sooner
        os._exit(130)

    threading.Thread(target=watch, daemon=True).start()
