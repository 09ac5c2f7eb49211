"""Scores in the optimizer's geometry against gradients that were scaled by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import MODELS, gradient_by_hand, policy_of, pool_of, validation_of

from pipeline_lib.influence.exact import exact_products, exact_scores
from pipeline_lib.influence.geometry import DAMPING, SecondMoment, scaled
from pipeline_lib.influence.objective import scored_parameters
from pipeline_lib.influence.per_token import token_derivatives
from pipeline_lib.influence.validation import BATCH, Directions, validation_directions
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

TEMPERATURE = 0.8


def ignore(_: int) -> None:
    pass


def directions_of(policy: Policy, validation: dict[str, list[RolloutGroup]]) -> Directions:
    return validation_directions(
        policy,
        validation,
        scored_parameters(policy.model),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=10_000,
        progress=ignore,
        adam=True,
    )


def scale_by_hand(policy: Policy, gradients: list[np.ndarray]) -> np.ndarray:
    """q^(-1/4) of every coordinate, q by rows and columns of each matrix; rows and columns at least DAMPING of mean."""
    q, pieces, start = np.mean([g**2 for g in gradients], axis=0), [], 0
    for parameter in scored_parameters(policy.model):
        part = q[start : start + parameter.numel()].reshape(tuple(parameter.shape))
        start += parameter.numel()
        if part.ndim == 1:
            pieces.append(np.maximum(part, DAMPING * part.mean()))
            continue
        rows = np.maximum(part.mean(axis=1), DAMPING * part.mean())
        columns = np.maximum(part.mean(axis=0), DAMPING * part.mean())
        pieces.append((np.outer(rows, columns) / part.mean()).reshape(-1))
    return np.concatenate(pieces) ** -0.25


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("tokens", [1, 10_000])
def test_scores_are_those_of_scaled_gradients_by_hand(name: str, tokens: int) -> None:
    """tokens=1 takes every prompt by itself through plain autograd; 10,000 packs them all together."""
    policy, groups = policy_of(name), pool_of(1)
    mean_VD = [
        np.mean([gradient_by_hand(policy, group, TEMPERATURE) for group in pool if group.has_signal], axis=0)
        for pool in validation_of(1).values()
    ]
    scale_D = scale_by_hand(policy, mean_VD)  # BATCH is more than either set has
    g_ND = np.stack([gradient_by_hand(policy, group, TEMPERATURE) for group in groups]) * scale_D
    v_VD = np.stack(mean_VD) * scale_D
    found = exact_scores(
        policy,
        groups,
        validation_of(1),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=tokens,
        progress=ignore,
        adam=True,
    )
    lengths = np.outer(np.linalg.norm(g_ND, axis=1), np.linalg.norm(v_VD, axis=1))
    np.testing.assert_allclose(found.norm, np.linalg.norm(g_ND, axis=1), rtol=1e-4)
    np.testing.assert_allclose(found.dot, g_ND @ v_VD.T, atol=1e-4 * lengths.max())


def test_the_second_moment_is_taken_of_batches_of_validation_prompts() -> None:
    policy = policy_of("qwen2")
    pool = [group for seed in range(3) for group in pool_of(80 + seed) if group.has_signal]
    assert BATCH < len(pool) < 2 * BATCH  # the second one is smaller
    batches = [pool[:BATCH], pool[BATCH:]]
    means = [np.mean([gradient_by_hand(policy, g, TEMPERATURE) for g in batch], axis=0) for batch in batches]
    scale_D = scale_by_hand(policy, means)
    v_D = np.average(means, axis=0, weights=[len(batch) for batch in batches]) * scale_D
    found = np.concatenate([part_VD[0].numpy() for part_VD in directions_of(policy, {"all": pool}).values_VD])
    assert np.linalg.norm(found - v_D) < 1e-4 * np.linalg.norm(v_D)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_a_matrix_of_rank_one_is_scaled_to_entries_alike_whatever_its_size(
    n: int, n_rows: int, n_columns: int, seed: int, size: float
) -> None:
    """Where q is an outer product, its factors say all of it: |g|·q^(-1/4) is |g|^(1/2), like Adam's step's root."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (0.5 + torch.rand(k, generator=generator) for k in (n_rows, n_columns))
    gradient = size * torch.outer(rows, columns)
    moment = SecondMoment()
    for _ in range(n):
        moment.add([gradient, gradient[0]])
    matrix, vector = moment.geometry().scaled([gradient, gradient[0]])
    torch.testing.assert_close(matrix, gradient.sqrt(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(vector, gradient[0].sqrt(), rtol=1e-4, atol=1e-6)


def test_what_no_validation_prompt_has_moved_neither_fails_nor_outweighs_the_rest() -> None:
    moment = SecondMoment()
    moved = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    moment.add([moved, torch.zeros(3)])
    matrix, vector = moment.geometry().scales
    rows = scaled(torch.ones(2, 2), matrix)[:, 0]
    # Of the moved row q is twice the mean of the matrix, of the other one DAMPING of it.
    assert float(rows[1] / rows[0]) == pytest.approx((2 / DAMPING) ** 0.25)
    assert torch.isfinite(scaled(torch.ones(2, 2), matrix)).all()
    assert torch.equal(scaled(torch.ones(3), vector), torch.ones(3))


def test_saved_directions_come_back_with_their_geometry(tmp_path: Path) -> None:
    policy = policy_of("llama-tied")
    parameters = scored_parameters(policy.model)
    directions = directions_of(policy, dict(validation_of(1)))
    directions.save(tmp_path / "directions.safetensors")
    loaded = Directions.load(tmp_path / "directions.safetensors", directions.names, torch.device("cpu"))
    last = loaded.over(parameters, parameters[-3:])
    found, expected = (
        exact_products(
            policy,
            pool_of(1),
            each.over(parameters, parameters[-3:]),
            parameters[-3:],
            temperature=TEMPERATURE,
            tokens_per_micro_batch=10_000,
            progress=ignore,
        )
        for each in (loaded, directions)
    )
    assert last.geometry is not None and len(last.geometry.scales) == 3
    np.testing.assert_array_equal(found.dot_NV, expected.dot_NV)
    np.testing.assert_array_equal(found.norm_N, expected.norm_N)


def test_derivatives_of_tokens_add_up_to_the_same_inner_product() -> None:
    policy = policy_of("llama")
    parameters = scored_parameters(policy.model)
    directions = directions_of(policy, dict(validation_of(1)))
    [group] = [group for group in pool_of(1) if group.has_signal][:1]
    products = exact_products(
        policy,
        [group],
        directions,
        parameters,
        temperature=TEMPERATURE,
        tokens_per_micro_batch=10_000,
        progress=ignore,
    )
    rewards = np.array(group.rewards)
    advantage = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    total = 0.0
    for found in token_derivatives(
        policy,
        group.graded,
        [directions.derivative(0, parameters)],
        temperature=TEMPERATURE,
        tokens_per_micro_batch=10_000,
    ):
        trajectory = found.trajectory
        ratio_T = np.exp(found.logprobs_T - np.array(trajectory.behaviour_logprobs))
        A = advantage[trajectory.sample_index]
        total += A * float(np.mean(ratio_T * found.derivatives_VT[0])) / len(rewards)
    assert total == pytest.approx(products.dot_NV[0, 0], rel=1e-3)
