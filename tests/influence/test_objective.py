"""The gradient of one group against the objective written out by hand."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import (
    MODELS,
    double,
    flat,
    gradient_by_hand,
    group_of,
    objective_by_hand,
    pack_of,
    policy_of,
    relative_error,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from pipeline_lib.influence.objective import group_gradient, requiring_grad, surrogate, weighted_trajectories
from pipeline_lib.policy import collate, token_logprobs
from pipeline_lib.records import RolloutGroup

REWARDS = [1.0, 0.0, None, 0.0, 0.25]


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_gradient_is_that_of_the_objective_by_hand(name: str, temperature: float) -> None:
    policy = policy_of(name)
    group = group_of("p", np.random.default_rng(1), REWARDS)
    found = flat(group_gradient(policy, group, temperature=temperature, tokens_per_micro_batch=20))
    assert relative_error(found, gradient_by_hand(policy, group, temperature)) < 1e-5


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=2, max_size=6),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 80),
    st.integers(0, 2**31),
)
def test_for_any_shape(
    rewards: list[float | None], max_prompt: int, max_completion: int, tokens: int, seed: int
) -> None:
    policy = policy_of("llama-tied")
    group = group_of("p", np.random.default_rng(seed), rewards, max_prompt, max_completion)
    found = flat(group_gradient(policy, group, temperature=0.8, tokens_per_micro_batch=tokens))
    expected = gradient_by_hand(policy, group, 0.8)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_tied_embedding_stands_once_and_sums_both_of_its_uses() -> None:
    tied = policy_of("llama-tied")
    group = group_of("p", np.random.default_rng(2), REWARDS)
    untied = copy.deepcopy(tied)
    untied.model.lm_head.weight = torch.nn.Parameter(tied.model.lm_head.weight.detach().clone())
    parts = {
        name: part
        for policy in (untied,)
        for (name, _), part in zip(
            policy.model.named_parameters(),
            group_gradient(policy, group, temperature=1.0, tokens_per_micro_batch=99),
            strict=True,
        )
    }
    names = [name for name, _ in tied.model.named_parameters()]
    both = group_gradient(tied, group, temperature=1.0, tokens_per_micro_batch=99)[
        names.index("model.embed_tokens.weight")
    ]
    assert "lm_head.weight" not in names
    torch.testing.assert_close(both, parts["model.embed_tokens.weight"] + parts["lm_head.weight"])


def test_on_policy_it_is_the_gradient_of_weighted_log_probs() -> None:
    policy = policy_of("qwen2")
    off_policy = group_of("p", np.random.default_rng(3), REWARDS)
    batch = collate(off_policy.trajectories, policy.pad_token_id, policy.device)
    with torch.no_grad():
        logprobs_BT = token_logprobs(policy, batch, temperature=0.7).logprobs_BT
    group = RolloutGroup(
        "p",
        tuple(
            dataclasses.replace(t, behaviour_logprobs=tuple(row[-len(t.completion_token_ids) :].tolist()))
            for t, row in zip(off_policy.trajectories, logprobs_BT, strict=True)
        ),
    )
    weighted = weighted_trajectories(group)
    found = group_gradient(policy, group, temperature=0.7, tokens_per_micro_batch=1000)
    with requiring_grad(policy, list(policy.model.parameters())):
        batch = collate([t for t, _ in weighted], policy.pad_token_id, policy.device)
        logprobs_B = token_logprobs(policy, batch, temperature=0.7).logprobs_BT.sum(1)
        expected = torch.autograd.grad(
            (torch.tensor([w for _, w in weighted]) * logprobs_B).sum(), list(policy.model.parameters())
        )
    assert relative_error(flat(found), flat(expected)) < 1e-5


def test_the_derivative_along_a_direction_is_the_dot_with_the_gradient() -> None:
    """Central differences of the objective by hand in float64, and forward-mode differentiation."""
    policy = policy_of("llama-tied")
    group = group_of("p", np.random.default_rng(4), REWARDS)
    model = double(policy)
    torch.manual_seed(5)
    direction = [torch.randn_like(p) for p in model.parameters()]
    g = flat(group_gradient(policy, group, temperature=0.9, tokens_per_micro_batch=64))
    dot = g @ flat(direction)
    # The directions nearly cancel, so the error is measured against the lengths.
    tolerance = 1e-6 * np.linalg.norm(g) * np.linalg.norm(flat(direction))

    def J_at(step: float) -> float:
        moved = copy.deepcopy(model).requires_grad_(False)
        for parameter, d in zip(moved.parameters(), direction, strict=True):
            parameter.add_(d, alpha=step)
        return float(objective_by_hand(moved, group, 0.9))

    h = 1e-5
    assert dot == pytest.approx((J_at(h) - J_at(-h)) / (2 * h), abs=tolerance)

    names = [name for name, _ in model.named_parameters()]

    class Objective(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self) -> torch.Tensor:
            return objective_by_hand(self.model, group, 0.9)

    wrapped = Objective()

    def J_of(*parameters: torch.Tensor) -> torch.Tensor:
        named = {f"model.{name}": p for name, p in zip(names, parameters, strict=True)}
        return torch.func.functional_call(wrapped, named, ())

    with sdpa_kernel(SDPBackend.MATH):
        _, derivative = torch.func.jvp(J_of, tuple(p.detach() for p in model.parameters()), tuple(direction))
    assert dot == pytest.approx(float(derivative), abs=tolerance)


@pytest.mark.parametrize("rewards", [[1.0, 1.0], [0.0, 0.0, None], [None, None], [1.0], [0.5, 0.5 + 1e-9]])
def test_without_signal_the_gradient_is_zero(rewards: list[float | None]) -> None:
    group = group_of("p", np.random.default_rng(6), rewards)
    parts = group_gradient(policy_of("llama"), group, temperature=1.0, tokens_per_micro_batch=64)
    assert all(not part.any() for part in parts)


def test_the_surrogate_of_several_groups_is_the_sum_of_theirs() -> None:
    policy = policy_of("llama")
    rng = np.random.default_rng(7)
    groups = [group_of(f"{i}", rng, REWARDS) for i in range(3)]
    together = surrogate(policy, pack_of(policy, *groups), temperature=1.0)
    apart = sum(surrogate(policy, pack_of(policy, group), temperature=1.0) for group in groups)
    torch.testing.assert_close(together, apart)


def test_requires_grad_is_put_back_as_it_was() -> None:
    policy = policy_of("llama")
    first, second, *_ = policy.model.parameters()
    first.requires_grad_(True)
    with requiring_grad(policy, [second]):
        assert [p.requires_grad for p in policy.model.parameters()][:2] == [False, True]
    assert (first.requires_grad, second.requires_grad) == (True, False)
