"""The faults: each starts a run at the step drawn, hurts it or its files, and leaves it to be resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos_curriculum import OTHER, Curriculum, Place
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

    def strike_in(self, run: Run) -> None:
        """Wait for a moment at random within the step."""
        self.struck_in = run.wait_within(self.curriculum.found(self.place), self.rng.random())


@dataclass(frozen=True)
class Fault:
    name: str
    do: Callable[[Attempt], None]
    steps: Sequence[str] | None = None
    """Names of the steps that it can strike in; None is any."""


def _killed(role: str | None, *, private: bool, overrides: Sequence[str] = ()) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        run = attempt.start(*overrides, private=private)
        attempt.strike_in(run)
        if role in (None, "server"):
            run.hurt(role, signal.SIGKILL)
        else:
            run.hurt_one(role, signal.SIGKILL, attempt.rng)
        run.wait()
        attempt.facts["left"] = run.left_after(END_SECONDS)

    return do


def _stopped(how: signal.Signals) -> Callable[[Attempt], None]:
    def do(attempt: Attempt) -> None:
        run = attempt.start(private=True)
        attempt.strike_in(run)
        started = time.monotonic()
        run.process.send_signal(how)
        code = run.wait()
        attempt.facts["seconds to stop"] = time.monotonic() - started
        attempt.facts["left"] = run.left_after(1.0)
        rows = Warehouse(attempt.curriculum.root).query("SELECT status FROM runs").to_pylist()
        if code != 130 or rows != [{"status": "failed"}]:
            raise AssertionError(f"stopped with exit code {code} and the run recorded as {rows}")

    return do


def _a_file_in_the_way(attempt: Attempt) -> None:
    """The step raises, since it cannot make the directory that it writes to, or its lock."""
    fingerprint = attempt.curriculum.found(attempt.place).fingerprint
    stage, name = attempt.place
    root = attempt.curriculum.root
    places = {
        "score": f"lake/scores/{fingerprint}",
        "train": f"stages/chaos/{stage}-{fingerprint}/checkpoints",
        "report": "reports",
    } | dict.fromkeys(ROLLOUTS, f"lake/rollouts/{fingerprint}")
    in_the_way = root / places.get(name, f"locks/{fingerprint}")
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    if name in places:
        in_the_way.write_text("in the way")
    else:
        in_the_way.mkdir()
    run = attempt.start()
    attempt.struck_in = attempt.curriculum.found(attempt.place).label
    code = run.wait()
    if code == 0:
        raise AssertionError("the step did not fail")
    if in_the_way.is_dir():
        in_the_way.rmdir()
    else:
        in_the_way.unlink()


def _behind_our_back(damage: Callable[[Path], None], find: Callable[[Path], list[Path]]) -> Callable[[Attempt], None]:
    """A run killed in the step, and one of the files that it has finished damaged while nothing runs."""

    def do(attempt: Attempt) -> None:
        run = attempt.start()
        attempt.strike_in(run)
        run.hurt(None, signal.SIGKILL)
        run.wait()
        attempt.facts["left"] = run.left_after(END_SECONDS)
        files = find(attempt.curriculum.root)
        if not files:
            raise Missed("no such file was there yet")
        damage(attempt.rng.choice(files))

    return do


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def _recorded_shards(root: Path) -> list[Path]:
    return [root / row["path"] for row in Warehouse(root).query("SELECT path FROM shards ORDER BY path").to_pylist()]


def _score_parts(root: Path) -> list[Path]:
    return sorted(root.glob("lake/scores/*/*.parquet"))


def _files_of_the_last_checkpoint(root: Path) -> list[Path]:
    stages = [complete_checkpoints(stage / "checkpoints") for stage in sorted(root.glob("stages/*/*"))]
    unfinished = [saved for saved in stages if saved and not (saved[-1].parent.parent / "result.json").exists()]
    return sorted(file for saved in unfinished for file in saved[-1].iterdir())


def _disk_full(attempt: Attempt) -> None:
    """The root on a disk that is full before the step has written all it wants to; then it is given more."""
    work = attempt.curriculum.work
    grows_by = max(attempt.curriculum.found(attempt.place).grows_by // 1024, SMALL_DISK_KB)
    used = sum(path.lstat().st_blocks for path in work.rglob("*")) // 2
    size = used + SMALL_DISK_KB + attempt.rng.randrange(grows_by)
    subprocess.run(["mount", "-o", f"remount,size={size}k", str(work)], check=True)
    run = attempt.start(private=True)  # whose database is on that disk as well
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
    run.hurt(None, signal.SIGKILL)
    run.wait()
    attempt.facts["left"] = run.left_after(END_SECONDS)
    attempt.resume_env = attempt.resume_env | {"LD_PRELOAD": str(clock(attempt)), "CLOCK_SHIFT_SECONDS": str(-DAY)}


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


TRAIN = ("train",)
FAULTS = [
    Fault("kill -9 of the run", _killed("run", private=True)),
    Fault("kill -9 of the training process", _killed("training", private=False), TRAIN),
    Fault(
        "kill -9 of a scoring process", _killed("scoring", private=False, overrides=["influence.workers=2"]), ("score",)
    ),
    Fault("kill -9 of the server", _killed("server", private=True)),
    Fault("kill -9 of all (reboot)", _killed(None, private=True)),
    Fault("SIGTERM", _stopped(signal.SIGTERM)),
    Fault("SIGINT", _stopped(signal.SIGINT)),
    Fault("exception in the step", _a_file_in_the_way),
    Fault("shard of rollouts truncated", _behind_our_back(_truncate, _recorded_shards)),
    Fault("shard of rollouts deleted", _behind_our_back(os.unlink, _recorded_shards)),
    Fault("shard of rollouts with a byte flipped", _behind_our_back(_flip, _recorded_shards)),
    Fault("part of the scores truncated", _behind_our_back(_truncate, _score_parts), ("score",)),
    Fault("checkpoint torn", _behind_our_back(_truncate, _files_of_the_last_checkpoint), TRAIN),
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
        subprocess.run(["umount", "--lazy", str(work)], check=True)
