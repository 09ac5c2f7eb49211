"""Grades many completions: what may hang or eat memory runs in processes that can be killed."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType

from pebble import ProcessExpired, ProcessPool

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards import VERIFIERS, get_verifier
from pipeline_lib.rewards.verifier import ERROR, TIMEOUT, UNPARSEABLE, Verifier

logger = logging.getLogger(__name__)

CHUNK = 16
"""Answers sent to a worker at once; a chunk that does not end in one answer's time is retried singly."""
CACHE_SIZE = 100_000

Answer = tuple[Prompt, str]
Key = tuple[str, str, str, str, str]
Outcome = list[Verdict] | BaseException


class Grader:
    """Grades completions in order. Use as a context manager; not for several threads at once.

    An answer that takes longer than `time_limit` seconds, or than its verifier's own, gets the status timeout
    and its process is replaced; one whose process needs `memory_limit_mb` more than at its start gets the status
    error. Processes are started on the first answer that needs one; they import the program's main module, so
    that one must guard its work by `if __name__ == "__main__"`.
    """

    def __init__(self, *, time_limit: float = 5.0, memory_limit_mb: int = 1024, workers: int | None = None) -> None:
        self.time_limit = time_limit
        self.memory_limit_mb = memory_limit_mb
        self.workers = workers or min(os.cpu_count() or 1, 8)
        self._pools: dict[str, ProcessPool] = {}
        self._cache: dict[Key, Verdict] = {}

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the processes; the next `grade` would start new ones."""
        for name in list(self._pools):
            self._drop_pool(name)

    def grade(self, items: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        """The verdicts on (prompt, completion) pairs, in their order."""
        if len(self._cache) > CACHE_SIZE:
            self._cache.clear()
        settled: list[Verdict | Key] = []
        pending: dict[str, dict[Key, Answer]] = {}
        for prompt, completion in items:
            verdict = _settle(get_verifier(prompt.verifier), prompt, completion)
            if isinstance(verdict, str):
                key = _key(prompt, verdict)
                if key not in self._cache:
                    pending.setdefault(prompt.verifier, {})[key] = (prompt, verdict)
                settled.append(key)
            else:
                settled.append(verdict)
        judged: dict[Key, Verdict] = {}
        for name, answers in pending.items():
            judged.update(zip(answers, self._judge(name, list(answers.values())), strict=True))
        verdicts = [
            verdict if isinstance(verdict, Verdict) else judged.get(verdict) or self._cache[verdict]
            for verdict in settled
        ]
        # A timeout or an error may be the machine's: the answer is judged again when it comes again.
        self._cache.update((key, verdict) for key, verdict in judged.items() if verdict.reward is not None)
        return verdicts

    def _judge(self, name: str, answers: list[Answer]) -> list[Verdict]:
        alone = get_verifier(name).time_limit is not None
        size = 1 if alone else min(CHUNK, math.ceil(len(answers) / self.workers))
        everything = range(len(answers))
        chunks = [everything[start : start + size] for start in everything[::size]]
        verdicts: dict[int, Verdict] = {}
        outcomes = self._run(name, [[answers[i] for i in chunk] for chunk in chunks])
        for chunk, outcome in zip(chunks, outcomes, strict=True):
            if isinstance(outcome, list):
                verdicts.update(zip(chunk, outcome, strict=True))
            elif len(chunk) == 1 and not isinstance(outcome, BrokenProcessPool):
                verdicts[chunk[0]] = _failure(outcome)
        singles = [i for i in everything if i not in verdicts]
        for i, outcome in zip(singles, self._run(name, [[answers[i]] for i in singles]), strict=True):
            verdicts[i] = outcome[0] if isinstance(outcome, list) else _failure(outcome)
        return [verdicts[i] for i in everything]

    def _run(self, name: str, chunks: list[list[Answer]]) -> list[Outcome]:
        if not chunks:
            return []
        pool = self._pool(name)
        limit = get_verifier(name).time_limit or self.time_limit
        futures = [pool.schedule(_judge_chunk, args=(name, chunk, limit), timeout=limit) for chunk in chunks]
        outcomes = [future.exception() or future.result() for future in futures]
        if any(isinstance(outcome, BrokenProcessPool) for outcome in outcomes):
            self._drop_pool(name)
        return outcomes

    def _pool(self, name: str) -> ProcessPool:
        if name not in self._pools:
            self._pools[name] = ProcessPool(
                self.workers,
                initializer=_start_worker,
                initargs=(name, VERIFIERS[name], self.memory_limit_mb * 2**20),
                # A fork of a process that has loaded torch inherits its locks without its threads.
                context=get_context("spawn"),
            )
        return self._pools[name]

    def _drop_pool(self, name: str) -> None:
        pool = self._pools.pop(name)
        pool.stop()
        pool.join()


def _key(prompt: Prompt, answer: str) -> Key:
    # Two entries of reasoning-gym may ask the same and have the same gold.
    args = json.dumps([dict(prompt.verifier_args), prompt.extra.get("entry")], sort_keys=True, default=str)
    return prompt.verifier, prompt.prompt_id, prompt.gold, args, answer


def _settle(verifier: Verifier, prompt: Prompt, completion: str) -> Verdict | str:
    """A verdict, or the answer on which only an isolated `judge` can give one."""
    try:
        answer = verifier.extract(prompt, completion)
        if answer is None:
            return UNPARSEABLE
        return verifier.settle(prompt, answer) or answer
    except Exception:
        logger.warning("the verifier %s failed on prompt %s", prompt.verifier, prompt.prompt_id, exc_info=True)
        return ERROR


def _failure(error: BaseException) -> Verdict:
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, ProcessExpired):
        return ERROR
    raise RuntimeError(f"the verifier processes do not work: {error}") from error


# --- in the worker --------------------------------------------------------------------------------------


def _start_worker(name: str, target: str, memory_limit: int) -> None:
    # The default action ends a process even inside C code that never returns to the interpreter.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    VERIFIERS[name] = target
    get_verifier(name).warm_up()
    if sys.platform == "linux":
        data_pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = data_pages * resource.getpagesize() + memory_limit
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _judge_chunk(name: str, answers: list[Answer], time_limit: float) -> list[Verdict]:
    # Should the parent be killed meanwhile, nobody else would end a worker that hangs.
    signal.setitimer(signal.ITIMER_REAL, 2 * time_limit + 1)
    verdicts = [_judge_one(name, prompt, answer) for prompt, answer in answers]
    signal.setitimer(signal.ITIMER_REAL, 0)
    return verdicts


def _judge_one(name: str, prompt: Prompt, answer: str) -> Verdict:
    try:
        return get_verifier(name).judge(prompt, answer)
    except MemoryError:
        # What it left behind must not make the next answers fail: the process goes, the rest is retried.
        os._exit(1)
    except Exception:
        logger.warning("the verifier %s failed on prompt %s", name, prompt.prompt_id, exc_info=True)
        return ERROR
