"""Per-token derivatives against reverse mode token by token, and what can be made of them without the policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from influence_cases import MODELS, PAD, double, group_of, policy_of, pool_of, validation_of

from pipeline_lib.influence.estimators import (
    TokenWeights,
    clipped_token_ratio,
    dots_of_tokens,
    sequence_ratio,
    token_ratio,
)
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.objective import Gradient, requiring_grad
from pipeline_lib.influence.per_token import PER_TOKEN_SCHEMA, TokenDerivatives, per_token_table, token_derivatives
from pipeline_lib.influence.validation import mean_gradient
from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rollout import groups_to_table

TEMPERATURE = 0.8
QUERY = Path(__file__).parents[2] / "warehouse" / "queries" / "score_per_token.sql"


def random_direction(policy: Policy, seed: int) -> Gradient:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in policy.model.parameters()]


def derivatives(
    policy: Policy, trajectories: Sequence[Trajectory], directions: Sequence[Gradient], tokens: int = 200
) -> list[TokenDerivatives]:
    """In the order of the trajectories."""
    found = {
        (item.trajectory.prompt_id, item.trajectory.sample_index): item
        for item in token_derivatives(
            policy, trajectories, directions, temperature=TEMPERATURE, tokens_per_micro_batch=tokens
        )
    }
    assert len(found) == len(trajectories)
    return [found[t.prompt_id, t.sample_index] for t in trajectories]


def trajectories_of(groups: Sequence[RolloutGroup]) -> list[Trajectory]:
    return [t for group in groups for t in group.trajectories]


def stacked(found: Sequence[TokenDerivatives]) -> np.ndarray:
    return np.concatenate([item.derivatives_VT for item in found], axis=1)


def by_hand(policy: Policy, trajectory: Trajectory, direction: Gradient) -> tuple[list[float], list[float]]:
    """Log-probs and derivatives in float64: one unpadded sequence, one backward pass a token."""
    model = double(policy)
    parameters = list(model.parameters())
    ids = torch.tensor([[*trajectory.prompt_token_ids, *trajectory.completion_token_ids]])
    logits = model(input_ids=ids, use_cache=False).logits[0] / TEMPERATURE
    logprobs, slopes = [], []
    for step, token in enumerate(trajectory.completion_token_ids):
        row = logits[len(trajectory.prompt_token_ids) - 1 + step]
        possible = torch.cat([row[:PAD], row[PAD + 1 :]])
        logprob = row[token] - torch.log(torch.exp(possible).sum())
        gradient = torch.autograd.grad(logprob, parameters, retain_graph=True)
        logprobs.append(logprob.item())
        slopes.append(sum(float((g * v).sum()) for g, v in zip(gradient, direction, strict=True)))
    return logprobs, slopes


def table_of(policy: Policy, groups: Sequence[RolloutGroup], tokens: int = 200) -> pa.Table:
    directions = {
        name: mean_gradient(
            policy, pool, list(policy.model.parameters()), temperature=TEMPERATURE, tokens_per_micro_batch=tokens
        )
        for name, pool in validation_of(1).items()
    }
    found = token_derivatives(
        policy,
        trajectories_of(groups),
        list(directions.values()),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=tokens,
    )
    return per_token_table(found, list(directions))


def exact_dots(policy: Policy, groups: Sequence[RolloutGroup]) -> pa.Table:
    scores = exact_scores(
        policy,
        groups,
        validation_of(1),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=10_000,
        progress=lambda _: None,
    )
    return scores.to_table().select(["prompt_id", "validation_set", "dot"])


def assert_same_dots(found: pa.Table, expected: pa.Table, tolerance: float = 1e-5) -> None:
    keys = [("validation_set", "ascending"), ("prompt_id", "ascending")]
    found, expected = found.sort_by(keys), expected.sort_by(keys)
    for key, _ in keys:
        assert found[key].to_pylist() == expected[key].to_pylist()
    dots, reference = found["dot"].to_numpy(), expected["dot"].to_numpy()
    assert (dots[reference == 0] == 0).all()
    np.testing.assert_allclose(dots, reference, rtol=tolerance, atol=tolerance * np.abs(reference).max())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_derivatives_are_those_of_reverse_mode_token_by_token(name: str) -> None:
    policy = policy_of(name)
    group = group_of("p", np.random.default_rng(1), [1.0, None, 0.0])
    directions = [random_direction(policy, 2), random_direction(policy, 3)]
    for item in derivatives(policy, group.trajectories, directions):
        assert item.derivatives_VT.dtype == item.logprobs_T.dtype == np.float32
        for found_T, direction in zip(item.derivatives_VT, directions, strict=True):
            logprobs, slopes = by_hand(policy, item.trajectory, direction)
            np.testing.assert_allclose(item.logprobs_T, logprobs, rtol=1e-5)
            np.testing.assert_allclose(found_T, slopes, rtol=1e-5, atol=1e-5 * np.abs(slopes).max())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_they_add_up_to_the_exact_dots(name: str) -> None:
    policy, groups = policy_of(name), pool_of(1)
    assert_same_dots(dots_of_tokens(groups_to_table(groups), table_of(policy, groups)), exact_dots(policy, groups))


def test_they_are_linear_in_the_direction() -> None:
    policy, trajectories = policy_of("qwen2"), trajectories_of(pool_of(2, 2))
    a, b = random_direction(policy, 4), random_direction(policy, 5)
    mixed = [2.0 * x - 0.5 * y for x, y in zip(a, b, strict=True)]
    nothing = [torch.zeros_like(x) for x in a]
    found = stacked(derivatives(policy, trajectories, [a, b, mixed, nothing]))
    np.testing.assert_allclose(2.0 * found[0] - 0.5 * found[1], found[2], atol=1e-5 * np.abs(found).max())
    assert (found[3] == 0).all()


def test_micro_batches_do_not_matter() -> None:
    policy, trajectories = policy_of("llama-tied"), trajectories_of(pool_of(3, 3))
    directions = [random_direction(policy, 6)]
    one_by_one = derivatives(policy, trajectories, directions, tokens=1)
    for tokens in (25, 10_000):
        found = derivatives(policy, trajectories, directions, tokens)
        scale = np.abs(stacked(one_by_one)).max()
        np.testing.assert_allclose(stacked(found), stacked(one_by_one), atol=1e-5 * scale)
        for item, alone in zip(found, one_by_one, strict=True):
            np.testing.assert_allclose(item.logprobs_T, alone.logprobs_T, rtol=1e-5)


def test_the_log_probs_are_the_policys() -> None:
    policy, trajectories = policy_of("llama"), trajectories_of(pool_of(4, 2))
    batch = collate(trajectories, policy.pad_token_id, policy.device)
    logprobs_BT = token_logprobs(policy, batch, temperature=TEMPERATURE).logprobs_BT.numpy()
    for row_T, item in zip(logprobs_BT, derivatives(policy, trajectories, [random_direction(policy, 7)]), strict=True):
        np.testing.assert_allclose(row_T[-len(item.logprobs_T) :], item.logprobs_T, rtol=1e-5)


def test_memory_is_that_of_one_micro_batch() -> None:
    policy, trajectories = policy_of("llama"), trajectories_of(pool_of(5, 2))
    rows: list[int] = []
    policy.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    directions = [random_direction(policy, 8), random_direction(policy, 9)]
    found = token_derivatives(policy, trajectories, directions, temperature=1.0, tokens_per_micro_batch=1)
    assert rows == []
    next(found)
    assert rows == [1, 1], "one trajectory along two directions"


@pytest.mark.parametrize("trainable", [False, True])
def test_the_policy_is_left_as_it_was(trainable: bool) -> None:
    policy = policy_of("llama-tied")
    policy.model.requires_grad_(trainable)
    before = {name: p.clone() for name, p in policy.model.named_parameters()}
    backends = torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()
    found = token_derivatives(
        policy,
        trajectories_of(pool_of(6, 2)),
        [random_direction(policy, 10)],
        temperature=1.0,
        tokens_per_micro_batch=1,
    )
    for _ in found:  # also in between
        assert torch.autograd.forward_ad._current_level == -1
        assert (torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()) == backends
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert policy.model.lm_head.weight is policy.model.model.embed_tokens.weight
        for name, parameter in policy.model.named_parameters():
            assert parameter.requires_grad == trainable and parameter.grad is None
            assert torch.autograd.forward_ad.unpack_dual(parameter).tangent is None
            assert torch.equal(parameter, before[name])


def test_in_inference_mode_and_without_gradients() -> None:
    policy, trajectories = policy_of("llama"), trajectories_of(pool_of(7, 1))
    directions = [random_direction(policy, 11)]
    expected = stacked(derivatives(policy, trajectories, directions))
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            np.testing.assert_array_equal(stacked(derivatives(policy, trajectories, directions)), expected)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2"])
@pytest.mark.parametrize("parameters", [torch.bfloat16, torch.float32])
def test_bfloat16_is_near(name: str, parameters: torch.dtype) -> None:
    """bfloat16 throughout, and float32 parameters under autocast."""
    policy, groups = policy_of(name), pool_of(8)
    trajectories, directions = trajectories_of(groups), [random_direction(policy, 12)]
    expected = stacked(derivatives(policy, trajectories, directions))
    low = dataclasses.replace(policy, dtype=torch.bfloat16)
    low.model.to(parameters)
    found = stacked(derivatives(low, trajectories, directions))
    assert found.dtype == np.float32
    assert 0 < np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


def test_rows_do_not_depend_on_the_order_of_the_work() -> None:
    policy, groups = policy_of("llama"), pool_of(9, 2)
    table = table_of(policy, groups)
    assert table.schema == PER_TOKEN_SCHEMA
    keys = [(t.prompt_id, t.sample_index) for t in trajectories_of(groups) for _ in range(2)]
    assert list(zip(table["prompt_id"].to_pylist(), table["sample_index"].to_pylist(), strict=True)) == keys
    assert table["validation_set"].to_pylist() == ["plus", "minus"] * (len(keys) // 2)
    lengths = [len(t.completion_token_ids) for t in trajectories_of(groups) for _ in range(2)]
    for name in ("derivatives", "logprobs"):
        assert [len(row) for row in table[name].to_pylist()] == lengths
    keys_only = ["prompt_id", "sample_index", "validation_set"]
    assert table_of(policy, groups[::-1], tokens=1).select(keys_only) == table.select(keys_only)


def surrogate_of(name: str, log_ratio_T: torch.Tensor, advantage: float) -> torch.Tensor:
    ratio_T = torch.exp(log_ratio_T)
    match name:
        case "token":
            return (ratio_T * advantage).mean()
        case "clipped":
            return torch.minimum(ratio_T * advantage, ratio_T.clamp(0.9, 1.3) * advantage).mean()
        case _:
            return torch.exp(log_ratio_T.mean()) * advantage


ESTIMATORS: dict[str, TokenWeights] = {
    "token": token_ratio,
    "clipped": partial(clipped_token_ratio, clip_low=0.1, clip_high=0.3),
    "sequence": sequence_ratio,
}


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_estimators_are_the_gradients_of_their_surrogates(name: str) -> None:
    policy = policy_of("llama-tied")
    groups = [near_policy(policy, group) for group in pool_of(10, 3)]
    table = table_of(policy, groups)
    found = dots_of_tokens(groups_to_table(groups), table, ESTIMATORS[name])
    direction = mean_gradient(
        policy,
        validation_of(1)["minus"],
        list(policy.model.parameters()),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=99,
    )
    expected = []
    for group in groups:
        graded = group.graded
        rewards = np.array(group.rewards)
        advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        batch = collate(graded, policy.pad_token_id, policy.device)
        with requiring_grad(policy, list(policy.model.parameters())):
            logprobs_BT = token_logprobs(policy, batch, temperature=TEMPERATURE).logprobs_BT
            J = torch.zeros(())
            for row, (t, advantage) in enumerate(zip(graded, advantages, strict=True)):
                log_ratio_T = (logprobs_BT - batch.behaviour_logprobs_BT)[row, -len(t.completion_token_ids) :]
                J = J + surrogate_of(name, log_ratio_T, float(advantage)) / len(graded)
            gradient = torch.autograd.grad(J, list(policy.model.parameters()))
        expected.append(sum(float((g * v).double().sum()) for g, v in zip(gradient, direction, strict=True)))
    dots = [row["dot"] for row in found.to_pylist() if row["validation_set"] == "minus"]
    np.testing.assert_allclose(dots, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    if name != "token":
        assert not np.allclose(found["dot"], dots_of_tokens(groups_to_table(groups), table)["dot"], rtol=1e-2)


def near_policy(policy: Policy, group: RolloutGroup) -> RolloutGroup:
    """The same tokens from a behaviour policy close by, so that clipping cuts some ratios and leaves others."""
    rng = np.random.default_rng(0)
    found = derivatives(policy, group.trajectories, [random_direction(policy, 13)])
    moved = [tuple((item.logprobs_T + rng.normal(0, 0.3, len(item.logprobs_T))).tolist()) for item in found]
    return RolloutGroup(
        group.prompt_id,
        tuple(dataclasses.replace(t, behaviour_logprobs=b) for t, b in zip(group.trajectories, moved, strict=True)),
    )


def test_clipping_stops_a_token_only_where_it_went_too_far_already() -> None:
    log_ratio_T = np.log([0.5, 1.0, 2.0])
    np.testing.assert_allclose(clipped_token_ratio(log_ratio_T, 3.0), [0.5, 1.0, 0.0])
    np.testing.assert_allclose(clipped_token_ratio(log_ratio_T, -3.0), [0.0, -1.0, -2.0])
    np.testing.assert_allclose(token_ratio(log_ratio_T, 3.0), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(sequence_ratio(log_ratio_T, 3.0), [1.0, 1.0, 1.0])


def test_groups_without_signal_need_no_derivatives_and_others_do() -> None:
    policy = policy_of("llama")
    rng = np.random.default_rng(14)
    dull = [group_of("dull", rng, [1.0, 1.0]), group_of("ungraded", rng, [None, None])]
    mixed = group_of("mixed", rng, [1.0, 0.0, None])
    table = table_of(policy, [mixed])
    dots = dots_of_tokens(groups_to_table([*dull, mixed]), table)
    assert [row["dot"] == 0 for row in dots.to_pylist()] == [True] * 4 + [False] * 2
    other = group_of("other", rng, [1.0, 0.0])
    with pytest.raises(ValueError, match=r"prompt other, sample 0: no derivatives along validation set 'plus'"):
        dots_of_tokens(groups_to_table([mixed, other]), table)


def score_by_sql(root: Path, rollouts: pa.Table, per_token: pa.Table) -> pa.Table:
    for name, table in (("rollouts", rollouts), ("per_token", per_token)):
        (root / name).mkdir()
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), root / name / "shard-00000.parquet")
        pq.write_table(table.slice(half), root / name / "shard-00001.parquet")
    parameters = {name: f"{root}/{name}/*.parquet" for name in ("rollouts", "per_token")}
    with duckdb.connect() as connection:
        return connection.execute(QUERY.read_text(), parameters).to_arrow_table()


def test_duckdb_alone_gives_the_exact_dots(tmp_path: Path) -> None:
    policy = policy_of("llama-tied")
    rng = np.random.default_rng(16)
    first, *others = group_of("empty", rng, [1.0, 0.0, 1.0]).trajectories
    empty = dataclasses.replace(first, completion_token_ids=(), behaviour_logprobs=())
    groups = [
        *pool_of(15),
        group_of("ungraded", rng, [None, None]),
        RolloutGroup("empty", (empty, *others)),
    ]
    per_token = table_of(policy, [group for group in groups if group.has_signal])
    found = score_by_sql(tmp_path, groups_to_table(groups), per_token)
    assert_same_dots(found, exact_dots(policy, groups))
    assert_same_dots(found, dots_of_tokens(groups_to_table(groups), per_token), tolerance=1e-12)


def test_in_sql_a_dot_without_its_derivatives_is_null(tmp_path: Path) -> None:
    policy, groups = policy_of("llama"), pool_of(17, 1)
    found = score_by_sql(tmp_path, groups_to_table(groups), table_of(policy, groups).slice(1))
    assert {row["validation_set"]: row["dot"] is None for row in found.to_pylist()} == {"plus": True, "minus": False}
