"""A scoring process: `python -m pipeline_lib.influence.worker JOB_FILE UNIT...`.

Several may work at one job, each at units of its own; what a killed one had not finished is left to the next.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    launcher = os.getppid()  # before the import, which takes seconds: the launcher may die meanwhile
    from pipeline_lib.influence import make_scorer
    from pipeline_lib.influence.job import ScoreJob
    from pipeline_lib.influence.shards import score_units

    def stop_if_abandoned(_: int) -> None:
        if os.getppid() != launcher:
            sys.exit("the process that launched this worker is gone; stopping before the next prompts")

    job = ScoreJob.read(Path(sys.argv[1]))
    scorer = make_scorer(job)
    scorer.load()
    score_units(job, scorer, sys.argv[2:], stop_if_abandoned)


if __name__ == "__main__":
    main()
