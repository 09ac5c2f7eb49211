"""How far a policy has moved from its rollouts: by hand, and in the extremes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from influence_cases import group_of, policy_of, pool_of

from pipeline_lib.config import ExactInfluence
from pipeline_lib.influence.drift import DRIFT_SCHEMA, Drift, DriftMeter, drift_table, measure_drift
from pipeline_lib.influence.exact import exact_products
from pipeline_lib.influence.objective import scored_parameters, weighted_trajectories
from pipeline_lib.influence.validation import validation_directions
from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.records import RolloutGroup


def log_ratios(policy: Policy, group: RolloutGroup, temperature: float = 1.0) -> list[list[float]]:
    """Of each trajectory that weighs, by itself."""
    found = []
    for trajectory, _ in weighted_trajectories(group):
        batch = collate([trajectory], policy.pad_token_id, policy.device)
        with torch.no_grad():
            logprobs = token_logprobs(policy, batch, temperature=temperature).logprobs_BT[0]
        found.append((logprobs - torch.tensor(trajectory.behaviour_logprobs)).tolist())
    return found


def on_policy(policy: Policy, group: RolloutGroup) -> RolloutGroup:
    ratios = iter(log_ratios(policy, group))
    return dataclasses.replace(
        group,
        trajectories=tuple(
            dataclasses.replace(
                t, behaviour_logprobs=tuple(b + r for b, r in zip(t.behaviour_logprobs, next(ratios), strict=True))
            )
            for t in group.trajectories
        ),
    )


def by_hand(ratios: list[list[float]]) -> Drift:
    rho = [math.exp(r) for trajectory in ratios for r in trajectory]
    weights = [math.exp(sum(trajectory)) for trajectory in ratios]
    return Drift(
        n_tokens=len(rho),
        kl=sum(r - 1 - math.log(r) for r in rho) / len(rho),
        ess=sum(rho) ** 2 / (len(rho) * sum(r * r for r in rho)),
        sequence_ess=sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights)),
    )


@pytest.mark.parametrize("tokens", [1, 30, 10_000])
def test_drift_is_that_of_each_prompt_by_hand(tokens: int) -> None:
    policy, groups = policy_of("llama"), pool_of(1, n=7)
    found = measure_drift(policy, groups, temperature=0.8, tokens_per_micro_batch=tokens)
    assert set(found) == {group.prompt_id for group in groups if group.has_signal}
    for group in groups:
        if group.has_signal:
            expected = by_hand(log_ratios(policy, group, 0.8))
            assert vars(found[group.prompt_id]) == pytest.approx(vars(expected), rel=1e-4)


def test_scoring_measures_the_same_on_its_way() -> None:
    policy, groups = policy_of("qwen2"), pool_of(2, n=7)
    parameters = scored_parameters(policy.model)
    for tokens in (1, 10_000):
        settings = {"temperature": 0.8, "tokens_per_micro_batch": tokens}
        directions = validation_directions(
            policy,
            {"plus": pool_of(3)},
            parameters,
            **settings,  # type: ignore[arg-type]
            progress=lambda _: None,
        )
        meter = DriftMeter()
        exact_products(
            policy,
            groups,
            directions,
            parameters,
            **settings,  # type: ignore[arg-type]
            progress=lambda _: None,
            meter=meter,
        )
        expected = measure_drift(policy, groups, **settings)  # type: ignore[arg-type]
        assert set(meter.drifts()) == set(expected)
        for prompt_id, drift in meter.drifts().items():
            assert vars(drift) == pytest.approx(vars(expected[prompt_id]), rel=1e-4)


def test_a_policy_has_not_moved_from_its_own_rollouts() -> None:
    policy = policy_of("llama-tied")
    group = on_policy(policy, group_of("p", np.random.default_rng(1), [1.0, 0.0, 1.0]))
    [drift] = measure_drift(policy, [group], temperature=1.0, tokens_per_micro_batch=999).values()
    assert drift.kl == pytest.approx(0.0, abs=1e-9)
    assert drift.ess == pytest.approx(1.0) and drift.sequence_ess == pytest.approx(1.0)
    # At another temperature it is another distribution.
    [drift] = measure_drift(policy, [group], temperature=0.5, tokens_per_micro_batch=999).values()
    assert drift.kl > 0.01


def test_stale_is_above_the_kl_or_below_the_share() -> None:
    config = ExactInfluence(max_kl=0.2, min_ess=0.4)
    near, far, thin = Drift(9, 0.1, 0.9, 0.9), Drift(9, 0.3, 0.9, 0.9), Drift(9, 0.1, 0.3, 0.9)
    table = drift_table({"near": near, "far": far, "thin": thin}, "train", config)
    assert table.schema == DRIFT_SCHEMA
    assert dict(zip(table["prompt_id"].to_pylist(), table["stale"].to_pylist(), strict=True)) == {
        "near": False,
        "far": True,
        "thin": True,
    }
