"""Shards go to whoever works on them and come back as they finish; an error takes back what has not begun."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from shard_cases import Number, Threads

from pipeline_lib.config import LocalRunner
from pipeline_lib.kept import drop_kept, kept
from pipeline_lib.records import Prompt
from tasks.errors import StepFailed
from tasks.runners import open_runner
from tasks.runners.mapped import MappedShards
from tasks.runners.worker import check_processes, check_sees


class Died(Exception):
    pass


def double(number: Number) -> int:
    return 2 * number.value


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.pool.shutdown()


def mapped(threads: Threads) -> MappedShards:
    return MappedShards(threads, cancel=threads.cancel, died=(Died,))  # type: ignore[arg-type]


def test_in_this_process_a_shard_is_begun_when_the_one_before_has_been_taken() -> None:
    begun: list[int] = []

    def note(number: Number) -> int:
        begun.append(number.value)
        return double(number)

    with open_runner(LocalRunner()) as runner:
        results = runner.map(note, [Number(1), Number(2)])
        assert next(results) == 2 and begun == [1]
        assert list(results) == [4] and begun == [1, 2]


def test_mapped_shards_come_back_each_once(threads: Threads) -> None:
    assert sorted(mapped(threads).map(double, [Number(i) for i in range(9)])) == list(range(0, 18, 2))
    assert list(mapped(threads).map(double, [])) == []


def test_results_that_are_there_come_before_the_error_and_the_rest_is_taken_back(threads: Threads) -> None:
    failed, two_are_there = threading.Event(), threading.Event()

    def work(number: Number) -> int:
        if number.value == 0:
            two_are_there.wait(10)
            failed.set()
            raise RuntimeError("out of luck")
        if number.value == 3:
            two_are_there.set()
            failed.wait(10)
        return number.value

    taken: list[int] = []
    with pytest.raises(RuntimeError, match="out of luck"):
        for result in mapped(threads).map(work, [Number(i) for i in range(40)]):
            taken.append(result)
    assert {1, 2} <= set(taken)
    assert len(taken) < 39 and threads.cancelled


def test_a_worker_that_died_is_told_with_shard_and_remedy(threads: Threads) -> None:
    def die(number: Number) -> int:
        raise Died("lost connection")

    with pytest.raises(StepFailed, match=r"number 7: the workers that tried it died \(Died: lost connection\).*memory"):
        list(mapped(threads).map(die, [Number(7)]))


def test_what_nobody_waits_for_any_more_is_taken_back(threads: Threads) -> None:
    def wait(number: Number) -> int:
        threads.gate.wait(10 if number.value else 0)
        return number.value

    results = mapped(threads).map(wait, [Number(i) for i in range(9)])
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    threads.gate.set()
    assert len(threads.cancelled) == 8


# --- what a worker keeps and what it must see -------------------------------------------------------------


@contextmanager
def opened(name: str, log: list[str]) -> Iterator[str]:
    log.append(f"open {name}")
    yield name
    log.append(f"close {name}")


def test_one_thing_is_kept_until_another_is_wanted() -> None:
    log: list[str] = []
    for name in ("a", "a", "b", "a"):
        with kept(name, partial(opened, name, log)) as value:
            assert value == name
    drop_kept()
    drop_kept()
    assert log == ["open a", "close a", "open b", "close b", "open a", "close a"]


def test_nothing_is_kept_of_a_failure() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError), kept("a", partial(opened, "a", log)):
        raise RuntimeError
    with kept("a", partial(opened, "a", log)):
        pass
    drop_kept()
    assert log == ["open a", "close a"] * 2


def test_a_worker_that_does_not_see_the_root_or_the_policy_says_so(tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    with pytest.raises(ValueError, match=rf"root={tmp_path}: the worker on .* must see .* mount the storage"):
        check_sees(tmp_path, "f00d", str(policy))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "f00d").touch()
    with pytest.raises(ValueError, match=rf"policy {policy}: the worker on .* finds no {policy}"):
        check_sees(tmp_path, "f00d", str(policy))
    policy.mkdir()
    check_sees(tmp_path, "f00d", str(policy))


def test_a_daemonic_worker_refuses_a_verifier_with_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(verifier: str) -> Prompt:
        return Prompt("test", ({"role": "user", "content": "?"},), "1", verifier)

    check_processes([prompt("math")])
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    check_processes([prompt("exact"), prompt("numeric")])
    with pytest.raises(ValueError, match=r"verifier math: .*DASK_DISTRIBUTED__WORKER__DAEMON=false"):
        check_processes([prompt("exact"), prompt("math")])
