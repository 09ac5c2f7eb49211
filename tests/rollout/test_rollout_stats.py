"""The difficulty history's rows."""

import re
from pathlib import Path

import pytest

from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rollout import ROLLOUT_STATS_SCHEMA, rollout_stats


def group(*rewards: float | None, truncated: int = 0) -> RolloutGroup:
    return RolloutGroup(
        "p",
        tuple(
            Trajectory(
                prompt_id="p",
                sample_index=k,
                prompt_token_ids=(1,),
                completion_token_ids=(3,) * (k + 1),
                behaviour_logprobs=(-1.0,) * (k + 1),
                finish_reason="length" if k < truncated else "stop",
                text="",
                reward=reward,
                correct=reward == 1.0,
                verifier_status="timeout" if reward is None else "ok",
            )
            for k, reward in enumerate(rewards)
        ),
    )


def test_a_mixed_group_with_an_ungraded_completion() -> None:
    [row] = rollout_stats([group(1.0, 0.0, None, truncated=2)], step=3, phase="train", policy_id="q").to_pylist()
    assert row == {
        "prompt_id": "p",
        "step": 3,
        "phase": "train",
        "policy_id": "q",
        "n": 2,
        "n_correct": 1,
        "n_ungraded": 1,
        "reward_mean": 0.5,
        "reward_std": pytest.approx(0.5**0.5),
        "outcome": "mixed",
        "has_signal": True,
        "n_truncated": 2,
        "mean_length": 2.0,
        "max_length": 3,
    }


def test_mean_and_spread_are_null_where_undefined() -> None:
    ungraded, single = rollout_stats([group(None), group(1.0)], step=0, phase="offline", policy_id="q").to_pylist()
    assert (ungraded["outcome"], ungraded["reward_mean"], ungraded["reward_std"]) == ("ungraded", None, None)
    assert (single["outcome"], single["reward_mean"], single["reward_std"]) == ("all_right", 1.0, None)


def test_columns_are_those_of_the_warehouse_without_the_fingerprint() -> None:
    sql = (Path(__file__).parents[2] / "warehouse" / "schema.sql").read_text()
    body = re.search(r"CREATE TABLE IF NOT EXISTS rollout_stats \((.*?)\n\);", sql, re.DOTALL)
    assert body is not None
    columns = re.findall(r"^ {4}([a-z_]+) [A-Z]", body[1], re.MULTILINE)
    assert [c for c in columns if c not in ("fingerprint", "PRIMARY")] == ROLLOUT_STATS_SCHEMA.names
