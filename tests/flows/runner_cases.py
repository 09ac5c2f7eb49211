"""A tiny run up to the scores of its first stage, on the workers that its config names.

python tests/flows/runner_cases.py CONFIG [KEY=VALUE...]   in a process of its own, with a Prefect server of its own.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_lib.records import Verdict
    from tasks.step import Done, Step


@dataclass(frozen=True)
class Judged:
    """A shard whose verifier needs a process: math-verify is asked for an answer that no plain number settles."""

    label: str
    answer: str


def judge(shard: Judged) -> tuple[int, Verdict]:
    from pipeline_lib.records import Prompt
    from pipeline_lib.rewards.grader import Grader

    prompt = Prompt("test", ({"role": "user", "content": "?"},), "\\frac{1}{2}", "math")
    with Grader(workers=1, time_limit=60) as grader:
        return os.getpid(), grader.grade([(prompt, shard.answer)])[0]


def main() -> None:
    from flows.prefect_server import LocalServer
    from pipeline_lib.config_file import load_config

    config = load_config(Path(sys.argv[1]), sys.argv[2:])
    server = LocalServer(Path(config.root))
    server.start()
    server.wait()
    from prefect import flow
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from runner_cases import Judged, judge

    from flows.chain import walk
    from flows.runs import record_run
    from tasks.prefect_task import perform_as_task
    from tasks.runners import open_runner

    class Reached(Exception):
        pass

    def do(step: Step) -> Done:
        done = perform_as_task(step)
        if step.name == "score":
            raise Reached
        return done

    @flow
    def up_to_the_scores() -> None:
        record_run(config, "running")
        with suppress(Reached):
            walk(config, do, stages=1)
        with open_runner(config.task_runner) as runner:
            shards = [Judged(f"answer {i}", answer) for i, answer in enumerate(("\\boxed{2/4}", "\\boxed{2/5}"))]
            for pid, verdict in runner.map(judge, shards):
                print("JUDGED", verdict.reward, verdict.status, pid != os.getpid())

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        up_to_the_scores()


if __name__ == "__main__":
    main()
