"""Shards as mapped Prefect tasks: the dashboard shows each, and its log, whichever worker it went to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import TaskRunner

from tasks.errors import StepFailed
from tasks.runners import R, S


class MappedShards:
    """Over a started task runner. `cancel` takes a future back; `died` is raised for a worker that is gone."""

    def __init__(
        self, runner: TaskRunner[Any], *, cancel: Callable[[Any], None], died: tuple[type[Exception], ...]
    ) -> None:
        self._runner = runner
        self._cancel = cancel
        self._died = died

    def map(self, function: Callable[[S], R], shards: Sequence[S]) -> Iterator[R]:
        waiting: dict[PrefectFuture[R], S] = {
            self._runner.submit(
                _shard.with_options(task_run_name=shard.label), {"work": partial(function, shard)}
            ): shard
            for shard in shards
        }
        error: Exception | None = None
        try:
            for future in as_completed(list(waiting)):
                shard = waiting.pop(future)
                try:
                    result = future.result()
                except Exception as raised:
                    if error is None:
                        error = self._in_words(raised, shard)
                        self._take_back(waiting)
                    continue
                yield result
        finally:
            self._take_back(waiting)
        if error is not None:
            raise error

    def _take_back(self, waiting: dict[PrefectFuture[R], S]) -> None:
        for future in waiting:
            self._cancel(future)

    def _in_words(self, error: Exception, shard: S) -> Exception:
        if not isinstance(error, self._died):
            return error
        failure = StepFailed(
            f"{shard.label}: the workers that tried it died ({type(error).__name__}: {error}); most often memory has "
            "run out: let fewer shards be worked on at once, or make them smaller. Finished shards are kept"
        )
        failure.__cause__ = error
        return failure


@task(name="shard", cache_policy=NO_CACHE, persist_result=False)
def _shard(work: Callable[[], R]) -> R:
    """A partial, since Prefect would look for futures in every prompt of a shard that were its own parameter.

    This function is pickled by value, that of the partial by its name, so that it finds what its module keeps.
    """
    return work()
