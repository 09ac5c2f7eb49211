"""The same curriculum on the dashboard: struck there, and gone on with by what the button Retry sends.

    PYTHONPATH=. .venv/bin/python benchmarks/chaos_dashboard.py runs/chaos-dashboard --faults 24 --seed 0

`rlsift dashboard` runs as a user has it: a Prefect server, a worker for each pool, every stage a flow run of its own.
What is killed is a process of a flow run, the training process, a Prefect worker, the server, or everything at once.
Where the curriculum's run ends otherwise than completed, Retry is asked for; then all is compared as chaos.py does.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from chaos import table
from chaos_curriculum import Curriculum, Found, Place, temporary_files
from chaos_faults import in_the_way
from chaos_run import PATIENCE, Missed, Run, kill, take_stock

from pipeline_lib.config_file import load_config

RESULTS = Path(__file__).parent / "results" / "chaos-dashboard.json"
RETRY = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}, "force": True}
"""What the button sends, as captured from a browser."""
MAX_RETRIES = 4
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Dashboard:
    """`rlsift dashboard` in a process of its own, and what a browser would ask its server."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "dashboard"
        self._log = directory / "dashboard.log"
        self.start()

    def start(self) -> None:
        self.process = Run(["flows.cli", "dashboard", "--root", str(self._root)], self._log, {})
        self.process.wait_for(lambda: "Ctrl-C stops it." in self.process.said())
        url = (self._root / "dashboard" / "address").read_text()
        self._api = httpx.Client(base_url=f"{url}/api", timeout=60)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """POST, again while the server is away or busy."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(httpx.TransportError):
                answer = self._api.post(path, json=body or {})
                if answer.status_code < 500 or time.monotonic() > deadline:
                    answer.raise_for_status()
                    return answer.json()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer to {path}")
            time.sleep(0.5)

    def create_curriculum(self, curriculum: Curriculum) -> str:
        [deployment] = self.ask("/deployments/filter", {"deployments": {"name": {"any_": ["curriculum"]}}})
        config = load_config(curriculum.config).model_dump(mode="json")
        created = self.ask(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": {"config": config}})
        return str(created["id"])

    def retry(self, run: str) -> None:
        answer = self.ask(f"/flow_runs/{run}/set_state", RETRY)
        assert answer["status"] == "ACCEPT", answer

    def state(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("/flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})[0]["state"]
        return found

    def family(self, run: str) -> list[str]:
        """The run and those of other deployments that it has started."""
        children = self.ask("/flow_runs/filter", {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}})
        return [run, *(child["id"] for child in children)]

    def begun(self, run: str) -> list[str]:
        """Labels of the steps that the run's log tells of, first to last."""
        filter = {"logs": {"flow_run_id": {"any_": self.family(run)}}, "sort": "TIMESTAMP_ASC"}
        said = [log["message"] for log in self.ask("/logs/filter", filter)]
        return [sentence.partition(" begins")[0] for sentence in said if " begins" in sentence]

    def processes_of(self, run: str) -> list[int]:
        """Of the flow runs of its family, without what they have launched themselves."""
        family = self.family(run)
        launched = {pid for role in ("training", "scoring") for pid in self.process.processes(role)}
        found = []
        for pid in self.process.processes():
            with suppress(OSError):
                environ = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                if pid not in launched and any(f"PREFECT__FLOW_RUN_ID={id}" in environ for id in family):
                    found.append(pid)
        return found

    def end(self) -> None:
        self.process.end()


@dataclass
class Attempt:
    curriculum: Curriculum
    place: Place
    rng: random.Random
    dashboard: Dashboard
    run: str = ""
    struck_in: str = ""
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def step(self) -> Found:
        return self.curriculum.found(self.place)

    def strike(self, until: Callable[[], object] = lambda: True) -> None:
        """Start the run; wait until it is in the step and for `until`, then for a moment at random."""
        self.run = self.dashboard.create_curriculum(self.curriculum)
        self.wait_for(lambda: self.step.label in self.dashboard.begun(self.run))
        self.wait_for(until)
        time.sleep(self.rng.random() * self.step.seconds)
        self.struck_in = self.dashboard.begun(self.run)[-1]

    def wait_for(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > deadline or self.dashboard.state(self.run)["type"] in ENDED:
                raise Missed("the run ended before it was hurt")
            time.sleep(0.1)


def _kill_flow_run(attempt: Attempt) -> None:
    attempt.strike()
    _kill_one(attempt, attempt.dashboard.processes_of(attempt.run))


def _kill_role(role: str) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        attempt.strike(lambda: attempt.dashboard.process.processes(role))
        _kill_one(attempt, attempt.dashboard.process.processes(role))

    return do


def _kill_one(attempt: Attempt, pids: list[int]) -> None:
    if not pids:
        raise Missed("no such process was there")
    kill(attempt.rng.choice(pids))


def _kill_all(attempt: Attempt) -> None:
    attempt.strike()
    attempt.dashboard.process.end()
    attempt.dashboard.start()


def _stop_and_start(attempt: Attempt) -> None:
    attempt.strike()
    started = time.monotonic()
    attempt.dashboard.process.process.send_signal(signal.SIGTERM)
    attempt.dashboard.process.wait()
    attempt.facts["seconds to stop"] = round(time.monotonic() - started, 2)
    attempt.facts["left"] = attempt.dashboard.process.left_after(1.0)
    attempt.dashboard.start()


def _exception(attempt: Attempt) -> None:
    """The step raises, since a file is where it wants to make a directory."""
    with in_the_way(attempt.curriculum.root, attempt.place, attempt.step):
        attempt.run = attempt.dashboard.create_curriculum(attempt.curriculum)
        attempt.struck_in = attempt.step.label
        _until_it_ends(attempt)
    if attempt.dashboard.state(attempt.run)["type"] == "COMPLETED":
        raise AssertionError("the step did not fail")


FAULTS: dict[str, tuple[Callable[[Attempt], None], tuple[str, ...] | None]] = {
    "kill -9 of a flow run's process": (_kill_flow_run, None),
    "kill -9 of the training process": (_kill_role("training"), ("train",)),
    "kill -9 of a Prefect worker": (_kill_role("worker"), None),
    "kill -9 of the server": (_kill_role("server"), None),
    "kill -9 of everything (reboot)": (_kill_all, None),
    "the dashboard stopped": (_stop_and_start, None),
    "exception in the step": (_exception, None),
}


def _until_it_ends(attempt: Attempt) -> str:
    deadline = time.monotonic() + PATIENCE
    while (state := attempt.dashboard.state(attempt.run)["type"]) not in ENDED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run is still {state}")
        time.sleep(0.5)
    return str(state)


def _gone_on_with(attempt: Attempt) -> dict[str, Any]:
    stock = take_stock(attempt.curriculum.root)
    began = time.monotonic()
    states = [_until_it_ends(attempt)]
    attempt.facts["seconds to its end"] = round(time.monotonic() - began, 1)
    while states[-1] != "COMPLETED" and len(states) <= MAX_RETRIES:
        attempt.dashboard.retry(attempt.run)
        states.append(_until_it_ends(attempt))
    differences = attempt.curriculum.differences(both=False)
    return {
        "equal": states[-1] == "COMPLETED" and not differences,
        "outcome": ", ".join(states),
        "retries": len(states) - 1,
        "differences": differences,
        "redone": stock.redone(take_stock(attempt.curriculum.root)),
        "beyond the checkpoint": stock.beyond,
        "temporary files": temporary_files(attempt.curriculum.root),
    }


def run_fault(curriculum: Curriculum, dashboard: Dashboard, seed: int, number: int) -> dict[str, Any]:
    """Until one has struck; those that came too late are counted."""
    order = list(FAULTS)
    random.Random(f"{seed}-{number // len(FAULTS)}").shuffle(order)
    name = order[number % len(FAULTS)]
    do, steps = FAULTS[name]
    for draw in range(20):
        rng = random.Random(f"{seed}-{number}-{draw}")
        place = rng.choice([place for place in curriculum.places if steps is None or place[1] in steps])
        row = {"number": number, "fault": name, "missed": draw}
        curriculum.reset(place)
        attempt = Attempt(curriculum, place, rng, dashboard)
        started = time.monotonic()
        try:
            do(attempt)
            row |= _gone_on_with(attempt)
        except Missed:
            _until_it_ends(attempt)
            continue
        except Exception as error:
            traceback.print_exc()
            row |= {"equal": False, "outcome": f"{type(error).__name__}: {error}", "differences": []}
        if not row["equal"]:
            curriculum.keep_failed(number)
        seconds = round(time.monotonic() - started, 1)
        return row | {"step": attempt.struck_in, "facts": attempt.facts, "seconds": seconds}
    return row | {"equal": False, "outcome": "never struck", "step": "", "facts": {}, "differences": [], "seconds": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--faults", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    curriculum = Curriculum(arguments.directory)
    curriculum.prepare()
    results = curriculum.directory / f"results-{arguments.seed}.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    dashboard = Dashboard(curriculum.directory)
    try:
        for number in range(len(rows), arguments.faults):
            rows.append(run_fault(curriculum, dashboard, arguments.seed, number))
            with results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    finally:
        dashboard.end()
    print("\n".join(table(rows, list(FAULTS))))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
