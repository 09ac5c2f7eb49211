"""An engine that draws each completion of a prompt with the same seed is told from a policy that is sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from flows.runs import record_run
from pipeline_lib.config import ChainSource, Generation, Offline, Prompts, RunConfig
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rollout import TransformersEngine
from pipeline_lib.rollout.identical import identical_in_words, identical_samples, log_chance_of_identical
from tasks.keeping.symptoms import examine_run
from tasks.policy import ImportPolicy
from tasks.progress import LogReporter, use_reporter
from tasks.prompts import IngestPrompts
from tasks.rollouts import CollectTrain
from tasks.step import perform
from warehouse import Warehouse


def group_of(*completions: Sequence[int], chance: float, prompt_id: str = "p") -> RolloutGroup:
    """Each token had this chance."""
    return RolloutGroup(
        prompt_id,
        tuple(
            Trajectory(prompt_id, i, (1,), tuple(ids), (math.log(chance),) * len(ids), "stop", "", 0.0, False, "ok")
            for i, ids in enumerate(completions)
        ),
    )


def test_the_chance_by_hand() -> None:
    # Two further draws of three tokens at 1/10 each, and one of one token at 1/2.
    groups = [group_of([4, 5, 2], [4, 5, 2], [4, 5, 2], chance=0.1), group_of([2], [2], chance=0.5)]
    assert log_chance_of_identical(groups) == pytest.approx(math.log(10**-6 * 0.5))


def test_one_group_whose_completions_differ_clears_the_engine() -> None:
    same = [group_of([4, 5, 2], [4, 5, 2], chance=1e-9)] * 9
    assert identical_samples(same)
    assert not identical_samples([*same, group_of([4, 5, 2], [4, 6, 2], chance=1e-9)])


def test_a_policy_that_is_sure_repeats_itself_and_is_no_fault() -> None:
    assert not identical_samples([group_of([4, 5, 2], [4, 5, 2], chance=0.999)] * 100)


def test_single_completions_say_nothing() -> None:
    assert not identical_samples([group_of([4, 5, 2], chance=1e-9)])
    assert not identical_samples([])


def test_words_give_the_numbers() -> None:
    said = identical_in_words([group_of(*[[4, 5, 2]] * 8, chance=0.1)] * 2)
    assert "each of 2 prompts got the same completion 8 times" in said
    assert "1 in 10^42" in said  # 2 prompts, 7 further draws, 3 tokens


class Listener(LogReporter):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def test_an_engine_with_broken_seeds_is_told_of_while_it_collects_and_by_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = TransformersEngine.generate

    def broken(self: TransformersEngine, prompts: Sequence[Sequence[int]], params: object, seed: int) -> list[list]:
        return [[group[0]] * len(group) for group in generate(self, prompts, params, seed)]  # type: ignore[arg-type]

    monkeypatch.setattr(TransformersEngine, "generate", broken)
    chains = [ChainSource(kinds=["plus", "minus"], lengths=[4], count=12, seed=s) for s in (1, 2, 3)]
    run = RunConfig(
        name="run",
        root=str(tmp_path),
        prompts=Prompts(train=chains[:1], validation={"v": chains[1:2]}, evaluation={"e": chains[2:]}),
        offline=Offline(samples=4, prompts_per_shard=100),
        generation=Generation(max_tokens=24, temperature=3.0),
    )
    policy = perform(ImportPolicy(run, 0))
    step = CollectTrain(run, 0, ingest=perform(IngestPrompts(run, 0, policy=policy)), policy=policy)
    listener = Listener()
    with use_reporter(listener):
        perform(step)
    [said] = [message for message in listener.said if "same completion" in message]
    assert "rollouts train, shard 0: each of 12 prompts got the same completion 4 times" in said
    record_run(run, "completed")
    found = {symptom.what for symptom in examine_run(Warehouse(tmp_path), "run")}
    assert "each of the 12 prompts of 1 shards got the same completion 4 times" in found
