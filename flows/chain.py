"""The steps of a run and how each feeds the next; whoever walks the chain says what is done with a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline_lib.config import InfluenceSelection, RunConfig
from tasks.evaluation import Evaluate
from tasks.policy import ImportPolicy
from tasks.prompts import IngestPrompts
from tasks.report import Report
from tasks.rollouts import CollectTrain, CollectValidation
from tasks.scores import Score
from tasks.selection import Select
from tasks.step import Done, Step, perform, recorded
from tasks.training import TrainStage

Do = Callable[[Step], Done]


class Pending(Exception):
    """The first step of the chain that is not recorded complete."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.label)
        self.step = step


@dataclass(frozen=True)
class Prepared:
    """Stage 0: the initial policy, the prompts, what it makes of them."""

    policy: Done
    ingest: Done
    rollouts_train: Done
    rollouts_validation: Done | None
    evaluation: Done


@dataclass(frozen=True)
class StageDone:
    selection: Done
    train: Done
    evaluation: Done


def prepare(run: RunConfig, do: Do) -> Prepared:
    policy = do(ImportPolicy(run, 0))
    ingest = do(IngestPrompts(run, 0, policy=policy))
    return Prepared(
        policy=policy,
        ingest=ingest,
        rollouts_train=do(CollectTrain(run, 0, ingest=ingest, policy=policy)),
        rollouts_validation=(
            do(CollectValidation(run, 0, ingest=ingest, policy=policy)) if _uses_influence(run) else None
        ),
        evaluation=do(Evaluate(run, 0, ingest=ingest, policy=policy)),
    )


def run_stage(run: RunConfig, stage: int, prepared: Prepared, earlier: list[StageDone], do: Do) -> StageDone:
    policy = earlier[-1].train if earlier else prepared.policy
    trained = tuple(done.train for done in earlier)
    score = None
    if prepared.rollouts_validation is not None:
        score = do(
            Score(
                run,
                stage,
                ingest=prepared.ingest,
                policy=policy,
                rollouts_train=prepared.rollouts_train,
                rollouts_validation=prepared.rollouts_validation,
            )
        )
    selection = do(
        Select(
            run,
            stage,
            ingest=prepared.ingest,
            rollouts_train=prepared.rollouts_train,
            score=score,
            trained=trained,
        )
    )
    train = do(
        TrainStage(
            run,
            stage,
            ingest=prepared.ingest,
            policy=policy,
            rollouts_train=prepared.rollouts_train,
            selection=selection,
            trained=trained,
        )
    )
    evaluation = do(Evaluate(run, stage, ingest=prepared.ingest, policy=train))
    return StageDone(selection, train, evaluation)


def walk(run: RunConfig, do: Do, *, stages: int) -> tuple[Prepared, list[StageDone]]:
    """The chain up to and including stage `stages`."""
    prepared = prepare(run, do)
    done: list[StageDone] = []
    for stage in range(1, stages + 1):
        done.append(run_stage(run, stage, prepared, done, do))
    return prepared, done


def finish(run: RunConfig, prepared: Prepared, stages: list[StageDone], do: Do) -> Done:
    """The report of the whole run."""
    made_from = [prepared.evaluation, *(s.evaluation for s in stages)]
    return do(Report(run, run.stages, made_from=tuple(made_from)))


def look_up(step: Step) -> Done:
    """The recorded result. Raises Pending where there is none."""
    done = recorded(step)
    if done is None:
        raise Pending(step)
    return done


def look_up_or_perform(step: Step) -> Done:
    return recorded(step) or perform(step)


def first_pending(run: RunConfig) -> Step | None:
    """The step that a run would do next; None when the whole run is recorded complete."""
    try:
        finish(run, *walk(run, look_up, stages=run.stages), look_up)
    except Pending as pending:
        return pending.step
    return None


def _uses_influence(run: RunConfig) -> bool:
    return isinstance(run.selection, InfluenceSelection)
