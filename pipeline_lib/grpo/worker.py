"""The training process: `python -m pipeline_lib.grpo.worker STAGE_DIRECTORY`.

Reads job.json, prompts.jsonl and history.json; writes records/, checkpoints/ and at the end result.json.
Started again in the same directory it goes on from the last complete checkpoint. Where the job asks for several
processes it launches them, watches over them, and ends them all when one fails.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_lib.config import Backend

ABANDONED = "the process that launched this worker is gone; stopping before the next step"


LAUNCHED = "--launched"
"""Argument of the processes that torch.distributed.run starts. Its own variables may be left from somebody else's."""

ERROR = "error.txt"
"""What ended the worker, in the stage's directory."""

ON_THIS_MACHINE = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
"""Of torch.distributed.run: any free port of the loopback."""


def main() -> None:
    launcher = os.getppid()  # before the import, which takes seconds: the launcher may die meanwhile
    directory = Path(sys.argv[1])
    if sys.argv[2:] == [LAUNCHED]:
        _train(directory, launcher, launched=True)
        return
    with (directory / "worker.lock").open("w") as lock:
        # A worker whose launcher was killed may still be in its last step here.
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / ERROR).unlink(missing_ok=True)
        backend = _backend(directory)
        if backend.type == "torch" and backend.processes == 1:
            _train(directory, launcher, launched=False)
        else:  # DeepSpeed wants a launcher for one process too
            _launch(directory, launcher, backend.processes)


def _train(directory: Path, launcher: int, *, launched: bool) -> None:
    # Verifier processes import this module again; they have no use for torch.
    from pipeline_lib.grpo.ranks import end_together
    from pipeline_lib.grpo.stage import run_job

    with ExitStack() as held:
        if launched and os.environ["RANK"] == "0":
            # Ranks may outlive a killed launcher for a step.
            lock = held.enter_context((directory / "rank.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            run_job(directory, _stop_if_abandoned(launcher), launched=launched)
            if launched:
                end_together()
        except Exception as error:
            _tell(directory, f"{type(error).__name__}: {error}")
            raise


def _tell(directory: Path, error: str) -> None:
    """Leave the first error of all processes where the launching step finds it: others follow from it."""
    with suppress(FileExistsError), (directory / ERROR).open("x") as file:
        file.write(error)


def _stop_if_abandoned(launcher: int) -> Callable[[], None]:
    def check() -> None:
        if os.getppid() != launcher:
            sys.exit(ABANDONED)

    return check


def _backend(directory: Path) -> Backend:
    from pipeline_lib.grpo.job import TrainJob

    return TrainJob.model_validate_json((directory / "job.json").read_text()).train.backend


def _launch(directory: Path, launcher: int, processes: int) -> None:
    """`processes` ranks of this module on this machine; torch's launcher ends them all when one fails."""
    from torch.distributed.run import main as torchrun

    def end_if_abandoned() -> None:
        while os.getppid() == launcher:
            time.sleep(1.0)
        print(ABANDONED, file=sys.stderr)
        os.kill(os.getpid(), signal.SIGTERM)  # which the launcher hands on to its ranks

    threading.Thread(target=end_if_abandoned, daemon=True).start()
    torchrun(
        [*ON_THIS_MACHINE, f"--nproc-per-node={processes}", "-m", "pipeline_lib.grpo.worker", str(directory), LAUNCHED]
    )


if __name__ == "__main__":
    main()
