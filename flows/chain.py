"""The steps of a run and how each feeds the next; whoever walks the chain says what is done with a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline_lib.config import InfluenceSelection, RelevanceSelection, RunConfig
from tasks.diagnosis import Diagnose
from tasks.drift import MeasureDrift, RecollectTrain, RecollectValidation
from tasks.evaluation import Evaluate
from tasks.policy import ImportPolicy
from tasks.prompts import IngestPrompts
from tasks.relevance import Relate
from tasks.report import Report
from tasks.rollouts import CollectTrain, CollectValidation
from tasks.scores import Score
from tasks.selection import Select
from tasks.similarity import Similarity
from tasks.step import Done, Step, recorded
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
    similarity: Done | None
    relevance: Done | None
    rollouts_train: Done
    rollouts_validation: Done | None
    evaluation: Done


@dataclass(frozen=True)
class Recollected:
    """Offline rollouts that took the place of stale ones."""

    train: Done
    validation: Done


@dataclass(frozen=True)
class StageDone:
    recollected: Recollected | None
    selection: Done
    diagnosis: Done
    train: Done
    evaluation: Done


def begin(run: RunConfig, do: Do) -> tuple[Done, Done]:
    """The initial policy and the prompts, which every later step reads."""
    policy = do(ImportPolicy(run, 0))
    return policy, do(IngestPrompts(run, 0, policy=policy))


def prepare(run: RunConfig, do: Do) -> Prepared:
    policy, ingest = begin(run, do)
    embedding_model = run.diagnosis.embedding_model
    # Before the rollouts, so that a model that cannot be loaded is told of before anything is spent.
    similarity = do(Similarity(run, 0, ingest=ingest, model=embedding_model)) if embedding_model else None
    relates = isinstance(run.selection, RelevanceSelection)
    return Prepared(
        policy=policy,
        ingest=ingest,
        similarity=similarity,
        relevance=do(Relate(run, 0, ingest=ingest, policy=policy)) if relates else None,
        rollouts_train=do(CollectTrain(run, 0, ingest=ingest, policy=policy)),
        rollouts_validation=(
            do(CollectValidation(run, 0, ingest=ingest, policy=policy)) if _uses_influence(run) else None
        ),
        evaluation=do(Evaluate(run, 0, ingest=ingest, policy=policy)),
    )


def run_stage(run: RunConfig, stage: int, prepared: Prepared, earlier: list[StageDone], do: Do) -> StageDone:
    policy = earlier[-1].train if earlier else prepared.policy
    again = [done.recollected for done in earlier if done.recollected]
    recollected = None
    score = None
    if prepared.rollouts_validation is not None:
        held_out = [prepared.rollouts_validation, *(done.validation for done in again)]
        if earlier and run.influence.on_stale == "recollect":
            recollected = _recollect(run, stage, prepared, policy, again, do)
            again.append(recollected)
            held_out.append(recollected.validation)
        score = do(
            Score(
                run,
                stage,
                ingest=prepared.ingest,
                policy=policy,
                rollouts_train=(prepared.rollouts_train, *(done.train for done in again)),
                rollouts_validation=tuple(held_out),
            )
        )
    rollouts = (prepared.rollouts_train, *(done.train for done in again))
    history = _history(prepared, earlier, recollected)
    selection = do(
        Select(
            run,
            stage,
            ingest=prepared.ingest,
            rollouts_train=rollouts,
            score=score,
            relevance=prepared.relevance,
            history=history,
        )
    )
    diagnosis = do(
        Diagnose(run, stage, rollouts_train=rollouts, score=score, selection=selection),
    )
    train = do(
        TrainStage(run, stage, ingest=prepared.ingest, policy=policy, selection=selection, history=history),
    )
    evaluation = do(Evaluate(run, stage, ingest=prepared.ingest, policy=train))
    return StageDone(recollected, selection, diagnosis, train, evaluation)


def walk(run: RunConfig, do: Do, *, stages: int) -> tuple[Prepared, list[StageDone]]:
    """The chain up to and including stage `stages`."""
    prepared = prepare(run, do)
    done: list[StageDone] = []
    for stage in range(1, stages + 1):
        done.append(run_stage(run, stage, prepared, done, do))
    return prepared, done


def finish(run: RunConfig, prepared: Prepared, stages: list[StageDone], do: Do) -> Done:
    """The report of the whole run."""
    made_from = [prepared.evaluation, *(s.evaluation for s in stages), *(s.diagnosis for s in stages)]
    if prepared.similarity is not None:
        made_from.append(prepared.similarity)
    return do(Report(run, run.stages, made_from=tuple(made_from)))


def look_up(step: Step) -> Done:
    """The recorded result. Raises Pending where there is none."""
    done = recorded(step)
    if done is None:
        raise Pending(step)
    return done


def recorded_or(do: Do) -> Do:
    """The recorded result, or what `do` makes of the step."""
    return lambda step: recorded(step) or do(step)


def is_recorded(run: RunConfig, *, stages: int) -> bool:
    """Whether every step up to and including stage `stages` is recorded complete."""
    try:
        walk(run, look_up, stages=stages)
    except Pending:
        return False
    return True


def first_pending(run: RunConfig) -> Step | None:
    """The step that a run would do next; None when the whole run is recorded complete."""
    try:
        finish(run, *walk(run, look_up, stages=run.stages), look_up)
    except Pending as pending:
        return pending.step
    return None


def places(run: RunConfig) -> list[tuple[int, str]]:
    """(stage, name) of every step of the run, in order. They depend on the config alone."""
    found: list[tuple[int, str]] = []

    def note(step: Step) -> Done:
        found.append((step.stage, step.name))
        return Done("", {}, cached=False)

    finish(run, *walk(run, note, stages=run.stages), note)
    return found


def _recollect(
    run: RunConfig, stage: int, prepared: Prepared, policy: Done, again: list[Recollected], do: Do
) -> Recollected:
    assert prepared.rollouts_validation is not None
    drift = do(
        MeasureDrift(
            run,
            stage,
            policy=policy,
            rollouts_train=(prepared.rollouts_train, *(done.train for done in again)),
            rollouts_validation=(prepared.rollouts_validation, *(done.validation for done in again)),
        )
    )
    return Recollected(
        train=do(RecollectTrain(run, stage, ingest=prepared.ingest, policy=policy, drift=drift)),
        validation=do(RecollectValidation(run, stage, ingest=prepared.ingest, policy=policy, drift=drift)),
    )


def _history(prepared: Prepared, earlier: list[StageDone], recollected: Recollected | None) -> tuple[Done, ...]:
    """Every step so far that rolled the pool out, oldest first."""
    steps = [prepared.rollouts_train]
    for done in earlier:
        steps += [done.recollected.train, done.train] if done.recollected else [done.train]
    return (*steps, recollected.train) if recollected else tuple(steps)


def _uses_influence(run: RunConfig) -> bool:
    return isinstance(run.selection, InfluenceSelection)
