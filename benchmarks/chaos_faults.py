"""The faults: each starts a run at the step drawn, hurts it or its files, and leaves it to be resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos_curriculum import OTHER, Curriculum, Found, Place
from chaos_run import Missed, Run

from flows.prefect_server import FOR_ONE_RUN, Server
from pipeline_lib.grpo.checkpoint_files import complete_checkpoints
from warehouse import Warehouse

ROLLOUTS = ("rollouts_train", "rollouts_validation", "evaluate")
FROZEN_SECONDS = 30.0
DAY = 86400
END_SECONDS = 60.0
"""Until the processes of a killed run have seen that they are alone."""
SMALL_DISK_KB = 16
MOMENT_SECONDS = 2.0


@dataclass
class Attempt:
    """A fault on its way: what it works on, and what is noted of it."""

    curriculum: Curriculum
    place: Place
    rng: random.Random
    server: Server
    logs: Path
    runs: list[Run] = field(default_factory=list)
    struck_in: str = ""
    both: bool = False
    """Whether a second config runs in the root as well."""
    facts: dict[str, float] = field(default_factory=dict)
    resume_env: dict[str, str] = field(default_factory=dict)

    def start(self, *overrides: str, private: bool = False, **env: str) -> Run:
        """`private`: with a Prefect server of its own, as from a shell; else at the one that is there for all."""
        given = [word for override in overrides for word in ("--set", override)]
        shared = {} if private else self.server.settings | FOR_ONE_RUN
        command = ["flows.cli", "run", str(self.curriculum.config), *given]
        run = Run(command, self.logs.with_name(f"{self.logs.name}-{len(self.runs)}.log"), shared | env)
        self.runs.append(run)
        return run

    @property
    def step(self) -> Found:
        return self.curriculum.found(self.place)

    def strike_in(self, run: Run) -> None:
        """Wait for a moment at random within the step."""
        self.struck_in = run.wait_within(self.step, self.rng.random() * self.step.seconds)

    def strike_after(self, run: Run, until: Callable[[], object]) -> None:
        """Wait within the step for something, and then for a moment at random."""
        self.struck_in = run.wait_within(self.step, self.rng.random() * MOMENT_SECONDS, until=until)


@dataclass(frozen=True)
class Fault:
    name: str
    do: Callable[[Attempt], None]
    steps: Sequence[str] | None = None
    """Names of the steps that it can strike in; None is any."""


def _killed(run: Run, attempt: Attempt) -> None:
    """All processes of the run, at once."""
    run.hurt(None, signal.SIGKILL)
    run.wait()
    attempt.facts["left"] = run.left_after(END_SECONDS)


def _kill_run(attempt: Attempt) -> None:
    run = attempt.start(private=True)
    attempt.strike_in(run)
    run.process.kill()
    run.wait()
    attempt.facts["left"] = run.left_after(END_SECONDS)


def _kill_worker(role: str, *overrides: str) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        run = attempt.start(*overrides)
        attempt.strike_after(run, lambda: run.processes(role))
        run.hurt(role, signal.SIGKILL)
        run.wait()
        attempt.facts["left"] = run.left_after(END_SECONDS)

    return do


def _kill_server(attempt: Attempt) -> None:
    run = attempt.start(private=True)
    attempt.strike_in(run)
    run.hurt("server", signal.SIGKILL)
    attempt.facts["went on"] = run.wait() == 0
    attempt.facts["left"] = run.left_after(END_SECONDS)


def _kill_all(attempt: Attempt) -> None:
    run = attempt.start(private=True)
    attempt.strike_in(run)
    _killed(run, attempt)


def _stop(how: signal.Signals) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        run = attempt.start(private=True)
        attempt.strike_in(run)
        started = time.monotonic()
        run.process.send_signal(how)
        code = run.wait()
        attempt.facts["seconds to stop"] = round(time.monotonic() - started, 2)
        attempt.facts["left"] = run.left_after(1.0)
        command = [sys.executable, "-m", "flows.cli", "status", "--root", str(attempt.curriculum.root)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if code != 130 or not ("failed" in told or "interrupted" in told):
            raise AssertionError(f"stopped with exit code {code}, and its state is told as {told}")

    return do


@contextmanager
def in_the_way(root: Path, place: Place, step: Found) -> Iterator[None]:
    """Something is where the step makes the directory that it writes to, or its lock, so that it raises."""
    stage, name = place
    places = {
        "score": f"lake/scores/{step.fingerprint}",
        "train": f"stages/chaos/{stage}-{step.fingerprint}/checkpoints",
        "report": "reports",
    } | dict.fromkeys(ROLLOUTS, f"lake/rollouts/{step.fingerprint}")
    stray = root / places.get(name, f"locks/{step.fingerprint}")
    stray.parent.mkdir(parents=True, exist_ok=True)
    if name in places:
        stray.write_text("in the way")
        yield
        stray.unlink()
    else:
        stray.mkdir()
        yield
        stray.rmdir()


def _exception(attempt: Attempt) -> None:
    with in_the_way(attempt.curriculum.root, attempt.place, attempt.step):
        code = attempt.start().wait()
        attempt.struck_in = attempt.step.label
    if code == 0:
        raise AssertionError("the step did not fail")


def _damage_a_shard(damage: Callable[[Path], None]) -> Callable[[Attempt], None]:
    """Of any step so far, after a kill."""

    def do(attempt: Attempt) -> None:
        run = attempt.start()
        attempt.strike_in(run)
        _killed(run, attempt)
        root = attempt.curriculum.root
        _damage_one([root / r["path"] for r in Warehouse(root).query("FROM shards").to_pylist()], damage, attempt)

    return do


def _truncate_a_part(attempt: Attempt) -> None:
    run = attempt.start()
    root, fingerprint = attempt.curriculum.root, attempt.step.fingerprint
    attempt.strike_after(run, lambda: list(root.glob(f"lake/scores/{fingerprint}/shard-*.parquet")))
    _killed(run, attempt)
    done = Warehouse(root).query("FROM steps WHERE fingerprint = $1 AND status = 'completed'", [fingerprint])
    if done.num_rows:
        raise Missed("the parts are of no more use")
    _damage_one(list(root.glob(f"lake/scores/{fingerprint}/*.parquet")), _truncate, attempt)


def _tear_a_checkpoint(attempt: Attempt) -> None:
    run = attempt.start()
    stage = attempt.curriculum.root / f"stages/chaos/{attempt.place[0]}-{attempt.step.fingerprint}"
    attempt.strike_after(run, lambda: list(stage.glob("checkpoints/step-*")))
    _killed(run, attempt)
    if (stage / "result.json").exists():
        raise Missed("the checkpoints are of no more use")
    _damage_one(list(complete_checkpoints(stage / "checkpoints")[-1].iterdir()), _truncate, attempt)


def _damage_one(files: list[Path], damage: Callable[[Path], None], attempt: Attempt) -> None:
    if not files:
        raise Missed("no such file was there yet")
    damage(attempt.rng.choice(sorted(files)))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def _disk_full(attempt: Attempt) -> None:
    """The root on a disk that is full before the step has written all it wants to; then it is given more."""
    work = attempt.curriculum.work
    grows_by = max(attempt.step.grows_by // 1024, SMALL_DISK_KB)
    disk = os.statvfs(work)
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize // 1024
    size = used + SMALL_DISK_KB + attempt.rng.randrange(grows_by)
    subprocess.run(["mount", "-o", f"remount,size={size}k", str(work)], check=True)
    run = attempt.start(private=attempt.rng.random() < 0.3)  # its database is on that disk as well, and fills it first
    if run.wait() == 0:
        raise Missed("the disk was large enough")
    said = run.said()
    attempt.struck_in = run.last_step()
    attempt.facts["left"] = run.left_after(END_SECONDS)
    attempt.facts["said that the disk is full"] = "No space left" in said
    subprocess.run(["mount", "-o", "remount,size=2g", str(work)], check=True)


def _clock_set_back(attempt: Attempt) -> None:
    """Killed, and resumed with a wall clock that is a day behind."""
    run = attempt.start(private=True)
    attempt.strike_in(run)
    _killed(run, attempt)
    attempt.resume_env = {"LD_PRELOAD": str(clock(attempt)), "CLOCK_SHIFT_SECONDS": str(-DAY)}


def clock(attempt: Attempt) -> Path:
    made = attempt.curriculum.directory / "chaos_clock.so"
    if not made.exists():
        source = Path(__file__).with_name("chaos_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(made), str(source), "-ldl"], check=True)
    return made


def _server_frozen(attempt: Attempt) -> None:
    run = attempt.start(private=True)
    attempt.strike_in(run)
    run.hurt("server", signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    run.hurt("server", signal.SIGCONT)
    attempt.facts["went on"] = run.wait() == 0
    attempt.facts["left"] = run.left_after(1.0)


def _two_starts(attempt: Attempt) -> None:
    _two_at_once(attempt, ())


def _two_configs(attempt: Attempt) -> None:
    attempt.both = True
    _two_at_once(attempt, OTHER)


def _two_at_once(attempt: Attempt, overrides: Sequence[str]) -> None:
    first = attempt.start()
    attempt.strike_in(first)
    second = attempt.start(*overrides)
    codes = [first.wait(), second.wait()]
    if codes != [0, 0]:
        raise AssertionError(f"two at once ended with {codes}")


TRAIN, SCORE = ("train",), ("score",)
FAULTS = [
    Fault("kill -9 of the run", _kill_run),
    Fault("kill -9 of the training process", _kill_worker("training"), TRAIN),
    Fault("kill -9 of a scoring process", _kill_worker("scoring", "influence.workers=2"), SCORE),
    Fault("kill -9 of the server", _kill_server),
    Fault("kill -9 of all (reboot)", _kill_all),
    Fault("SIGTERM", _stop(signal.SIGTERM)),
    Fault("SIGINT", _stop(signal.SIGINT)),
    Fault("exception in the step", _exception),
    Fault("shard of rollouts truncated", _damage_a_shard(_truncate)),
    Fault("shard of rollouts deleted", _damage_a_shard(os.unlink)),
    Fault("shard of rollouts with a byte flipped", _damage_a_shard(_flip)),
    Fault("part of the scores truncated", _truncate_a_part, SCORE),
    Fault("checkpoint torn", _tear_a_checkpoint, TRAIN),
    Fault("disk full", _disk_full),
    Fault("clock set back", _clock_set_back),
    Fault("server gone for 30 s", _server_frozen),
    Fault("two starts of one config", _two_starts),
    Fault("two configs in one root", _two_configs),
]


@contextmanager
def small_disk(work: Path) -> Iterator[None]:
    """A file system in memory at `work`, which may be made smaller and larger. Root alone can mount one."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(work)], check=True)
    try:
        yield
    finally:
        leave_small_disk(work)


def leave_small_disk(work: Path) -> None:
    """Also one that a benchmark which was killed has left."""
    while work.is_mount():
        subprocess.run(["umount", "--lazy", str(work)], check=True)
