"""Rows that share a prompt give the same ratios and gradients as rows of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import MODELS, flat, group_of, policy_of, pool_of, relative_error

from pipeline_lib.influence.objective import gradient, scored_parameters, token_log_ratios, weighted_trajectories
from pipeline_lib.influence.pack import (
    Row,
    attention_share,
    make_pack,
    packs,
    padded_tokens,
    row_length,
    rows_of,
)
from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.records import RolloutGroup


def rows_by(group: RolloutGroup, size: int) -> list[Row]:
    weighted = weighted_trajectories(group)
    return [weighted[i : i + size] for i in range(0, len(weighted), size)]


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_log_ratios_are_those_of_one_sequence_after_the_other(name: str, size: int) -> None:
    policy = policy_of(name)
    groups = [group for group in pool_of(3, n=8) if group.has_signal]
    pack = make_pack([rows_by(group, size) for group in groups], policy)
    with torch.no_grad():
        found_M = token_log_ratios(policy, pack, temperature=0.7)
    expected = []
    for group in groups:
        for trajectory, _ in weighted_trajectories(group):
            batch = collate([trajectory], policy.pad_token_id, policy.device)
            with torch.no_grad():
                logprobs = token_logprobs(policy, batch, temperature=0.7).logprobs_BT[0]
            expected += (logprobs - torch.tensor(trajectory.behaviour_logprobs)).tolist()
    np.testing.assert_allclose(found_M.numpy(), expected, atol=2e-5)


@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**31))
def test_the_gradient_does_not_depend_on_the_rows(size: int, max_prompt: int, max_completion: int, seed: int) -> None:
    policy = policy_of("qwen2-tied")
    group = group_of("p", np.random.default_rng(seed), [1.0, 0.0, 0.5, 0.0, 1.0, 1.0], max_prompt, max_completion)

    def gradient_of(rows: list[Row]) -> np.ndarray:
        parameters = scored_parameters(policy.model)
        return flat(gradient(policy, rows, parameters, temperature=1.0, tokens_per_micro_batch=10_000))

    assert relative_error(gradient_of(rows_by(group, size)), gradient_of(rows_by(group, 1))) < 1e-5


def lengths_of(prompt: int, completion: int, k: int = 8) -> list[int]:
    """Completions in each row, for k of one length at a realistic share of attention."""
    group = group_of("p", np.random.default_rng(0), [0.0, 1.0] * (k // 2))
    group = dataclasses.replace(
        group,
        trajectories=tuple(
            dataclasses.replace(
                t,
                prompt_token_ids=(5,) * prompt,
                completion_token_ids=(6,) * completion,
                behaviour_logprobs=(-1.0,) * completion,
            )
            for t in group.trajectories
        ),
    )
    return [len(row) for row in rows_of(weighted_trajectories(group), 1e-3, 100_000)]


def test_long_prompts_are_shared_and_long_completions_are_not() -> None:
    assert lengths_of(prompt=150, completion=20) == [8]
    assert lengths_of(prompt=20, completion=1024) == [1] * 8
    assert 1 < len(lengths_of(prompt=300, completion=200)) < 8


def test_the_rows_are_the_cheapest_by_hand() -> None:
    """150 + 20 tokens, 8 of them, S² at 1e-3: 8·170·1.17 = 1591, 4·190·1.19 = 904, 2·230·1.23 = 566, 310·1.31 = 406."""
    assert lengths_of(prompt=150, completion=20) == [8]
    # 500 + 400: 8·900·1.9 = 13680, 4·1300·2.3 = 11960, 2·2100·3.1 = 13020, 3700·4.7 = 17390.
    assert lengths_of(prompt=500, completion=400) == [2] * 4


def test_rows_are_never_larger_than_a_micro_batch_where_they_can_be_split() -> None:
    weighted = weighted_trajectories(group_of("p", np.random.default_rng(0), [0.0, 1.0] * 4, max_completion=9))
    for limit in (1, 20, 40):
        rows = rows_of(weighted, 0.0, limit)
        assert all(row_length(row) <= limit or len(row) == 1 for row in rows)
        assert [w for row in rows for w in row] == weighted


def test_a_sliding_window_takes_no_mask_of_ours() -> None:
    policy = policy_of("qwen2")
    assert attention_share(policy) is not None
    policy.model.config.sliding_window = 8
    assert attention_share(policy) is None


@settings(max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 200), st.integers(0, 2**31))
def test_packs_hold_every_prompt_once_within_the_limit(counts: list[int], limit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [group_of(str(i), rng, [0.0, 1.0] * 4) for i in range(len(counts))]
    prompts = [rows_by(group, 2)[:count] for group, count in zip(groups, counts, strict=True)]
    found = list(packs(prompts, limit))
    assert sorted(p for pack in found for p in pack) == [p for p, rows in enumerate(prompts) if rows]
    for pack in found:
        assert len(pack) == 1 or padded_tokens([row for p in pack for row in prompts[p]]) <= limit


def test_the_policy_of_a_row_is_the_policy_alone() -> None:
    """What stands in another segment of the row changes nothing, to the last bit of the mask."""
    policy: Policy = policy_of("llama")
    group = group_of("p", np.random.default_rng(5), [1.0, 0.0, 0.0])
    other = dataclasses.replace(
        group,
        trajectories=(
            group.trajectories[0],
            *(
                dataclasses.replace(t, completion_token_ids=tuple(3 for _ in t.completion_token_ids))
                for t in group.trajectories[1:]
            ),
        ),
    )
    n = len(group.trajectories[0].completion_token_ids)
    with torch.no_grad():
        a, b = (
            token_log_ratios(policy, make_pack([[weighted_trajectories(g)]], policy), temperature=1.0)[:n]
            for g in (group, other)
        )
    torch.testing.assert_close(a, b, rtol=0, atol=0)
