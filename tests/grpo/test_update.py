"""One policy update against a hand-written loop over trajectories, and what must leave the policy alone."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from grpo_cases import (
    HUGE,
    MAX_TOKENS,
    TEMPERATURE,
    count_sequences,
    gradient,
    in_double,
    logprobs_by_hand,
    parameters,
    random_groups,
    relative_error,
    sgd,
    tiny_policy,
    update_policy,
)

from pipeline_lib.config import DapoLoss, DrGrpoLoss, GrpoLoss, GspoLoss, Loss, Train
from pipeline_lib.grpo.update import NonFiniteUpdate
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

GRADED_REWARDS: list[list[float | None]] = [
    [1.0, 0.0, 0.0],
    [0.3, 1.0, 0.3, 0.9],
    [1.0, 1.0],
    [0.0, 0.0, 0.0],
]


LOSSES: dict[str, Loss] = {loss.type: loss for loss in (GrpoLoss(), DrGrpoLoss(), DapoLoss(), GspoLoss())}


def loss_by_hand(policy: Policy, reference: Policy | None, groups: Sequence[RolloutGroup], config: Loss) -> Any:
    """The loss as the papers write it, one completion after the other, in float64."""
    rows = []
    for group in groups:
        graded = [t for t in group.trajectories if t.reward is not None]
        rewards = [t.reward for t in graded]
        for t in graded:
            std = 1.0 if config.type == "dr_grpo" else statistics.stdev(rewards) + 1e-4
            advantage = 0.0 if len(set(rewards)) < 2 else (t.reward - statistics.mean(rewards)) / std
            if not (config.mask_truncated and t.finish_reason == "length"):
                rows.append((t, advantage))
    n_tokens = sum(len(t.completion_token_ids) for t, _ in rows)
    total = torch.zeros((), dtype=torch.float64)
    for t, advantage in rows:
        logprobs, entropies = logprobs_by_hand(policy, t, TEMPERATURE, entropies=True)
        ratios = torch.exp(logprobs - torch.tensor(t.behaviour_logprobs, dtype=torch.float64))
        if config.type == "gspo":
            ratios = torch.exp(torch.log(ratios).mean()).expand(len(ratios))
        weights = torch.ones_like(ratios)
        if config.max_importance_ratio is not None:
            weights = ratios.detach().clamp(max=config.max_importance_ratio)
            ratios = ratios / ratios.detach()
        bounded = ratios.clamp(1 - config.clip_low, 1 + config.clip_high)
        tokens = -weights * torch.minimum(ratios * advantage, bounded * advantage)
        tokens = tokens - config.entropy_coefficient * entropies
        if reference is not None:
            with torch.no_grad():
                reference_logprobs = logprobs_by_hand(reference, t, TEMPERATURE)
            r = reference_logprobs - logprobs
            tokens = tokens + config.kl_coefficient * (torch.exp(r) - r - 1)
        divisor = {
            "dapo": n_tokens,
            "dr_grpo": len(rows) * MAX_TOKENS,
            "grpo": len(rows) * len(tokens),
            "gspo": len(rows) * len(tokens),
        }
        total = total + tokens.sum() / divisor[config.type]
    return total


def config_of(loss: Loss | None = None, **settings: Any) -> Train:
    return Train(loss=loss or DapoLoss(clip_high=0.2), **({"max_grad_norm": HUGE} | settings))


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "kl": {"kl_coefficient": 0.3},
    "entropy": {"entropy_coefficient": 0.2},
    "masked": {"mask_truncated": True},
    "corrected": {"max_importance_ratio": 1.1},
    "everything": {
        "kl_coefficient": 0.3,
        "entropy_coefficient": 0.2,
        "mask_truncated": True,
        "max_importance_ratio": 1.1,
    },
}


def truncated(groups: list[RolloutGroup]) -> list[RolloutGroup]:
    """The second trajectory of every group was cut off."""
    return [
        replace(g, trajectories=(g.trajectories[0], replace(g.trajectories[1], finish_reason="length"), *rest))
        for g in groups
        for rest in [g.trajectories[2:]]
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_those_of_a_loop_over_trajectories(loss: str, variant: str) -> None:
    policy, by_hand = tiny_policy(seed=1), tiny_policy(seed=1)
    config = LOSSES[loss].model_copy(update=VARIANTS[variant])
    reference = tiny_policy(seed=2) if config.kl_coefficient else None
    groups = truncated(random_groups(tiny_policy(), [*GRADED_REWARDS, [1.0, None, 0.0]]))
    expected = loss_by_hand(by_hand, reference, groups, config)
    expected.backward()
    before = parameters(policy)
    metrics = update_policy(policy, reference, sgd(policy), groups, config_of(config))
    assert metrics.loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    assert relative_error(gradient(policy), gradient(by_hand)) < 2e-5
    assert metrics.grad_norm == pytest.approx(float(gradient(by_hand).norm()), rel=1e-5)
    assert relative_error(parameters(policy) - before, -0.5 * gradient(by_hand)) < 1e-4
    assert metrics.n_masked == (4 if config.mask_truncated else 0)  # the fifth of them is ungraded anyway


def test_the_gradient_is_clipped_to_its_greatest_norm() -> None:
    groups = random_groups(tiny_policy(), GRADED_REWARDS)
    free, clipped = tiny_policy(seed=1), tiny_policy(seed=1)
    raw = update_policy(free, None, sgd(free), groups, config_of())
    start = parameters(clipped)
    metrics = update_policy(clipped, None, sgd(clipped, lr=1.0), groups, config_of(max_grad_norm=1e-2))
    assert metrics.grad_norm == raw.grad_norm > 1e-2  # reported as it was before
    assert float((parameters(clipped) - start).norm()) == pytest.approx(1e-2, rel=1e-3)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_micro_batches_change_neither_loss_nor_gradient(loss: str, checkpointed: bool) -> None:
    groups = random_groups(tiny_policy(), GRADED_REWARDS)
    config = LOSSES[loss].model_copy(update={"kl_coefficient": 0.1, "entropy_coefficient": 0.1})
    results = []
    for tokens in (100_000, 30, 1):
        policy, reference = in_double(tiny_policy(seed=1)), in_double(tiny_policy())
        forwards = count_sequences(policy)
        train = config_of(config, tokens_per_micro_batch=tokens, gradient_checkpointing=checkpointed)
        metrics = update_policy(policy, reference, sgd(policy), groups, train)
        results.append((len(forwards), metrics, gradient(policy)))
    assert [n for n, _, _ in results[::2]] == [1, 12]
    assert 1 < results[1][0] < 12
    _, whole, whole_gradient = results[0]
    for _, metrics, cut_gradient in results[1:]:
        assert metrics.loss == pytest.approx(whole.loss, rel=1e-6)
        assert relative_error(cut_gradient, whole_gradient) < 1e-6
        assert metrics.entropy == pytest.approx(whole.entropy, rel=1e-6)
        assert metrics.clip_ratio_low_mean == whole.clip_ratio_low_mean
        assert metrics.sampling_logp_difference_max == pytest.approx(whole.sampling_logp_difference_max, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_groups_without_signal_weigh_in_the_denominator_and_cost_no_forward(loss: str) -> None:
    behaviour = tiny_policy()
    groups = random_groups(behaviour, GRADED_REWARDS)
    with_signal = groups[:2]
    config = config_of(LOSSES[loss])
    policy, alone = tiny_policy(seed=1), tiny_policy(seed=1)
    forwards = count_sequences(policy)
    metrics = update_policy(policy, None, sgd(policy), groups, config)
    assert sum(forwards) == 7  # 3 + 4 trajectories with signal; the other 5 are spared
    without = update_policy(alone, None, sgd(alone), with_signal, config)

    share = without.num_tokens / metrics.num_tokens if loss == "dapo" else 7 / 12
    assert share < 1
    assert metrics.loss == pytest.approx(share * without.loss, rel=1e-5)
    assert relative_error(gradient(policy), share * gradient(alone)) < 1e-5


def test_a_reference_draws_groups_without_signal_into_the_update() -> None:
    groups = random_groups(tiny_policy(), [[1.0, 1.0], [0.0, 0.0]])
    policy, reference = tiny_policy(seed=1), tiny_policy(seed=2)
    forwards = count_sequences(policy)
    metrics = update_policy(policy, reference, sgd(policy), groups, config_of(DapoLoss(kl_coefficient=0.5)))
    assert sum(forwards) == 4
    assert metrics.kl is not None and metrics.kl > 0
    assert metrics.loss == pytest.approx(0.5 * metrics.kl, rel=1e-5)  # the advantages are all 0
    assert metrics.grad_norm > 0


def test_a_batch_without_any_signal_makes_no_step() -> None:
    groups = random_groups(tiny_policy(), [[1.0, 1.0], [0.0, 0.0], [0.5, None]])
    policy = tiny_policy(seed=1)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1, weight_decay=0.1)
    before, forwards = parameters(policy), count_sequences(policy)
    metrics = update_policy(policy, None, optimizer, groups, config_of())
    assert torch.equal(parameters(policy), before)
    assert optimizer.state == {} and forwards == []
    assert (metrics.loss, metrics.grad_norm) == (0.0, 0.0)
    assert metrics.entropy is None and metrics.clip_ratio_low_mean is None and metrics.kl is None
    assert metrics.num_tokens == sum(
        len(t.completion_token_ids) for g in groups for t in g.trajectories if t.reward is not None
    )


@pytest.mark.parametrize("groups", [[], [[None, None]]], ids=["no group", "nothing graded"])
def test_nothing_to_train_on_is_no_error(groups: list[list[float | None]]) -> None:
    policy = tiny_policy()
    before = parameters(policy)
    metrics = update_policy(policy, None, sgd(policy), random_groups(policy, groups), config_of())
    assert torch.equal(parameters(policy), before)
    assert (metrics.loss, metrics.grad_norm, metrics.num_tokens) == (0.0, 0.0, 0)


def test_ungraded_trajectories_take_no_part() -> None:
    groups = random_groups(tiny_policy(), [[1.0, None, 0.0, None, 0.0]])
    graded = [RolloutGroup("p0", tuple(t for t in groups[0].trajectories if t.reward is not None))]
    with_ungraded, without = tiny_policy(seed=1), tiny_policy(seed=1)
    forwards = count_sequences(with_ungraded)
    a = update_policy(with_ungraded, None, sgd(with_ungraded), groups, config_of())
    b = update_policy(without, None, sgd(without), graded, config_of())
    assert sum(forwards) == 3
    assert replace(a, logprob_time=0.0) == replace(b, logprob_time=0.0)
    assert torch.equal(parameters(with_ungraded), parameters(without))


@pytest.mark.parametrize("poison", ["behaviour log-prob", "parameter"])
def test_a_number_that_is_not_finite_leaves_policy_and_optimizer_untouched(poison: str) -> None:
    policy = tiny_policy(seed=1)
    groups = random_groups(tiny_policy(), GRADED_REWARDS)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    update_policy(policy, None, optimizer, groups, config_of())
    if poison == "behaviour log-prob":
        first = groups[0].trajectories[0]
        bad = replace(first, behaviour_logprobs=(math.nan, *first.behaviour_logprobs[1:]))
        groups[0] = RolloutGroup("p0", (bad, *groups[0].trajectories[1:]))
    else:
        with torch.no_grad():
            next(policy.model.parameters())[5, 0] = math.nan
    before, state = parameters(policy), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(NonFiniteUpdate, match="not applied"):
        update_policy(policy, None, optimizer, groups, config_of())
    torch.testing.assert_close(parameters(policy), before, rtol=0, atol=0, equal_nan=True)
    after = optimizer.state_dict()
    assert after["param_groups"] == state["param_groups"]
    for key, moments in state["state"].items():
        assert all(torch.equal(after["state"][key][name], value) for name, value in moments.items())


def test_groups_of_an_older_policy_have_their_ratios_corrected_and_clipped() -> None:
    policy = tiny_policy(seed=1)
    groups = random_groups(tiny_policy(seed=9), [[1.0, 0.0, 0.0, 1.0]] * 3, seed=4)
    differences, low, high = [], 0, 0
    for group in groups:
        for t in group.trajectories:
            with torch.no_grad():
                logprobs = logprobs_by_hand(policy, t, TEMPERATURE)
            difference = logprobs - torch.tensor(t.behaviour_logprobs)
            differences += difference.abs().tolist()
            ratio = difference.exp()
            high += int((ratio > 1.2).sum()) if t.reward == 1.0 else 0
            low += int((ratio < 0.8).sum()) if t.reward == 0.0 else 0
    metrics = update_policy(policy, None, sgd(policy), groups, config_of())
    assert low > 0 and high > 0
    assert metrics.clip_ratio_low_mean == pytest.approx(low / len(differences))
    assert metrics.clip_ratio_high_mean == pytest.approx(high / len(differences))
    assert metrics.sampling_logp_difference_mean == pytest.approx(statistics.mean(differences), rel=1e-4)
    assert metrics.sampling_logp_difference_max == pytest.approx(max(differences), rel=1e-4)


def test_groups_of_the_policy_itself_have_ratio_one_and_clip_nothing() -> None:
    policy = tiny_policy(seed=1)
    groups = random_groups(policy, GRADED_REWARDS)
    metrics = update_policy(policy, None, sgd(policy), groups, config_of())
    assert metrics.sampling_logp_difference_max < 1e-4
    assert (metrics.clip_ratio_low_mean, metrics.clip_ratio_high_mean) == (0.0, 0.0)


def test_bfloat16_follows_float32_and_keeps_its_parameters_in_float32() -> None:
    groups = random_groups(tiny_policy(seed=1), GRADED_REWARDS)
    single, mixed = tiny_policy(seed=1), replace(tiny_policy(seed=1), dtype=torch.bfloat16)
    expected = update_policy(single, None, sgd(single), groups, config_of())
    metrics = update_policy(mixed, None, sgd(mixed), groups, config_of())
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
    assert metrics != expected
    assert metrics.entropy == pytest.approx(expected.entropy, abs=2e-3)
    cosine = torch.nn.functional.cosine_similarity(gradient(mixed), gradient(single), dim=0)
    assert cosine > 0.7  # the policy is nearly certain of its tokens: logits of 50 are rounded to quarters
