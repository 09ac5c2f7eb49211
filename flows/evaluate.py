"""Evaluate what has been trained by now, and train nothing: the flow for a nightly schedule."""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from flows.chain import Pending, begin, look_up, recorded_or, walk
from flows.runs import record_if_new
from pipeline_lib.config import RunConfig
from tasks.evaluation import Evaluate
from tasks.prefect_task import perform_as_task
from tasks.step import Done, Step


@flow(name="evaluate", flow_run_name="{config.name} · evaluate")
def evaluate(config: RunConfig) -> None:
    """Evaluate the initial policy and the policy of each stage that is trained.

    A policy that was evaluated already, over the same sets in the same way, is not evaluated again.
    """
    record_if_new(config)
    policy, ingest = begin(config, recorded_or(perform_as_task))
    perform_as_task(Evaluate(config, 0, ingest=ingest, policy=policy))
    try:
        walk(config, _evaluate_only, stages=config.stages)
    except Pending as pending:
        get_run_logger().info("%s is not done yet; there is nothing to evaluate after it.", pending.step.label)


def _evaluate_only(step: Step) -> Done:
    # Stage 0 comes before the walk, which would not reach it as long as the rollouts are not collected.
    return perform_as_task(step) if isinstance(step, Evaluate) and step.stage > 0 else look_up(step)
