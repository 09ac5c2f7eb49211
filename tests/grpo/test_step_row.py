"""The row of a training step by hand: outcomes, rewards and lengths of all that was rolled out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from grpo_cases import group

from pipeline_lib.grpo.fill import StepBatch
from pipeline_lib.grpo.metrics import step_row
from pipeline_lib.records import RolloutGroup
from pipeline_lib.sampling import Decision


def of_lengths(prompt_id: str, completions: Sequence[tuple[float | None, int, bool]]) -> RolloutGroup:
    """Completions of (reward, tokens, whether cut off)."""
    made = group(prompt_id, [reward for reward, _, _ in completions])
    trajectories = tuple(
        dataclasses.replace(
            t,
            completion_token_ids=(5,) * length,
            behaviour_logprobs=(-1.0,) * length,
            finish_reason="length" if cut_off else "stop",
        )
        for t, (_, length, cut_off) in zip(made.trajectories, completions, strict=True)
    )
    return RolloutGroup(prompt_id, trajectories)


GROUPS = [
    of_lengths("mixed", [(1.0, 2, False), (0.0, 10, True)]),
    of_lengths("right", [(1.0, 3, False), (1.0, 5, False)]),
    of_lengths("wrong", [(0.0, 10, True), (0.0, 4, False), (None, 6, False)]),
    of_lengths("equal credit", [(0.4, 8, False), (0.4, 8, False)]),
    of_lengths("unequal credit", [(0.2, 6, False), (0.6, 10, True)]),
    of_lengths("ungraded", [(None, 10, True), (None, 4, False)]),
]


def test_a_step_by_hand() -> None:
    decisions = [Decision(g.prompt_id, 0, 0, True, 1.0, "") for g in GROUPS]
    decisions.append(Decision("skipped", 0, 0, False, 0.1, ""))
    row = step_row(
        StepBatch(GROUPS[:1], carried=[], rolled_out=GROUPS, decisions=decisions, rounds=2, generated_tokens=86), None
    )
    expected = {
        # Equal rewards have no signal, at whatever height; which of them are right is a question of its own.
        "frac_reward_zero_std": 4 / 6,
        "solved_all": 1,
        "solved_some": 1,
        "solved_none": 3,
        "reward": pytest.approx((0.5 + 1.0 + 0.0 + 0.4 + 0.4) / 5),
        "reward_std": pytest.approx((0.5**0.5 + 0.4 * 0.5**0.5) / 5),
        "n_ungraded": 3,
        "n_timeout": 3,
        # Lengths are those of all completions, whatever a loss masks; then of those that ended by themselves.
        "completions_mean_length": 86 / 13,
        "completions_min_length": 2,
        "completions_max_length": 10,
        "completions_clipped_ratio": 4 / 13,
        "completions_mean_terminated_length": 46 / 9,
        "completions_min_terminated_length": 2,
        "completions_max_terminated_length": 8,
        "generated_tokens": 86,
        "generation_rounds": 2,
        "prompts_proposed": 7,
        "prompts_skipped": 1,
        "prompts_rolled_out": 6,
        "rollouts": 13,
        "groups_trained": 1,
        "groups_carried": 0,
        "loss": None,
        "num_tokens": 0,
    }
    assert {name: row[name] for name in expected} == expected


def test_a_step_that_rolled_nothing_out_has_no_means() -> None:
    row = step_row(StepBatch([]), None)
    for name in ("reward", "reward_std", "frac_reward_zero_std", "completions_mean_length", "completions_min_length"):
        assert row[name] is None
    assert (row["rollouts"], row["groups_trained"], row["solved_none"]) == (0, 0, 0)
