"""Rolling out: every completion is graded with its own prompt, order kept."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rollout_cases import tiny_policy

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rollout import SamplingParams, TransformersEngine, roll_out

PARAMS = SamplingParams(n=3, temperature=1.0, max_tokens=8, batch_size=4)


def chain(question: str) -> Prompt:
    return Prompt("chains", ({"role": "user", "content": question},), gold="0", verifier="exact")


def test_groups_follow_the_prompts_and_carry_their_verdicts() -> None:
    policy = tiny_policy()
    prompts = [chain("3+5-2=?"), chain("1+1=?"), chain("1*2+3^4=?")]
    asked: list[tuple[Prompt, str]] = []

    def grade(answers: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        asked.extend(answers)
        return [Verdict(float(i), i % 2 == 0) for i in range(len(answers))]

    rollout = roll_out(policy, TransformersEngine(policy), grade, prompts, PARAMS, seed=0)

    assert [group.prompt_id for group in rollout.groups] == [p.prompt_id for p in prompts]
    trajectories = [t for group in rollout.groups for t in group.trajectories]
    assert [t.reward for t in trajectories] == [float(i) for i in range(9)]
    assert [t.sample_index for t in trajectories] == [0, 1, 2] * 3
    assert asked == [(p, t.text) for p, g in zip(prompts, rollout.groups, strict=True) for t in g.trajectories]
    for prompt, group in zip(prompts, rollout.groups, strict=True):
        assert {t.prompt_token_ids for t in group.trajectories} == {tuple(policy.encode(prompt.messages))}
    assert rollout.generated_tokens == sum(len(t.completion_token_ids) for t in trajectories)
    assert rollout.generate_seconds > 0 and rollout.verify_seconds >= 0


def test_positions_that_the_policy_does_not_know_are_refused_in_words() -> None:
    policy = tiny_policy()
    prompt = chain("1+1=?")
    known = policy.model.config.max_position_embeddings
    length = len(policy.encode(prompt.messages))
    engine = TransformersEngine(policy)
    fits = replace(PARAMS, n=1, max_tokens=known - length)
    roll_out(policy, engine, lambda answers: [Verdict(0.0, False) for _ in answers], [prompt], fits, seed=0)
    said = (
        rf"a prompt of {length} tokens and generation.max_tokens={known - length + 1} go beyond the {known} positions"
    )
    with pytest.raises(ValueError, match=said):
        roll_out(policy, engine, lambda answers: [], [prompt], replace(fits, max_tokens=known - length + 1), seed=0)


def test_no_prompts_no_groups() -> None:
    policy = tiny_policy()
    rollout = roll_out(policy, TransformersEngine(policy), lambda answers: [], [], PARAMS, seed=0)
    assert rollout.groups == [] and rollout.generated_tokens == 0
