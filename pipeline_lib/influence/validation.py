"""The directions that influence is measured along: the mean gradient of each validation set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline_lib.influence.objective import Gradient, gradient, weighted_trajectories
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup

ValidationGroups = Mapping[str, Sequence[RolloutGroup]]


def check_signal(validation: ValidationGroups) -> None:
    """Raises ValueError for a set none of whose groups has signal, before anything is computed."""
    for name, groups in validation.items():
        if not any(group.has_signal for group in groups):
            outcomes = Counter(group.outcome for group in groups)
            found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "no group"
            raise ValueError(
                f"validation set {name!r}: none of its {len(groups)} groups has a gradient ({found}), so it "
                "gives influence no direction; give it prompts that the policy solves sometimes, raise "
                "offline.validation_samples, or take the set out of prompts.validation"
            )


def mean_gradient(
    policy: Policy, groups: Sequence[RolloutGroup], *, temperature: float, tokens_per_micro_batch: int
) -> Gradient:
    """v, the mean of the gradients of the groups with signal: linear, so one accumulated backward pass."""
    with_signal = [weighted_trajectories(group) for group in groups if group.has_signal]
    return gradient(
        policy,
        [(t, weight / len(with_signal)) for weighted in with_signal for t, weight in weighted],
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
    )
