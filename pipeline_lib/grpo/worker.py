"""The training process: `python -m pipeline_lib.grpo.worker STAGE_DIRECTORY`.

Reads job.json, prompts.jsonl and history.json; writes records/, checkpoints/ and at the end result.json.
Started again in the same directory it goes on from the last complete checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path


def main() -> None:
    launcher = os.getppid()  # before the import, which takes seconds: the launcher may die meanwhile
    # Verifier processes import this module again; they have no use for torch.
    from pipeline_lib.grpo.stage import run_job

    directory = Path(sys.argv[1])
    with (directory / "worker.lock").open("w") as lock:
        # A worker whose launcher was killed may still be in its last step here.
        fcntl.flock(lock, fcntl.LOCK_EX)

        def stop_if_abandoned() -> None:
            if os.getppid() != launcher:
                sys.exit("the process that launched this worker is gone; stopping before the next step")

        run_job(directory, stop_if_abandoned)


if __name__ == "__main__":
    main()
