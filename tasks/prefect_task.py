"""A step as a Prefect task, so that the dashboard shows it."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State

from tasks.artifacts import on_the_page
from tasks.step import Done, Step, perform


def perform_as_task(step: Step) -> Done:
    """`perform` as a Prefect task that bears the step's name."""
    state = _task.with_options(name=step.name)(step, return_state=True)
    done = state.result()
    assert isinstance(done, Done)
    return done


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="{step.label}")
def _task(step: Step) -> Done | State[Done]:
    """A step found complete ends in the state named Cached."""
    with on_the_page(step):
        done = perform(step)
    if done.cached:
        return Completed(name="Cached", data=done, message=f"{step.label}: found complete in the warehouse")
    return done
