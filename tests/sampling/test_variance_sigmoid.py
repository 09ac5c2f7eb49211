"""The article's filter put right: its sign, its schedules, its exploration, and how the threshold is steered."""

from __future__ import annotations

import math

import pytest
from sampling_cases import POOL, binary, observed

from pipeline_lib.config import FixedStep, Ramp, VarianceSigmoidSampler
from pipeline_lib.sampling import Observation
from pipeline_lib.sampling.variance_sigmoid import VarianceSigmoid

STEADY = VarianceSigmoidSampler(
    sharpness=Ramp(start=40, end=40, over=1),
    window=Ramp(start=2, end=2, over=1),
    exploration=Ramp(start=0.02, end=0.02, over=1),
    hard_exploration=0.0,
)


def sampler_with(config: VarianceSigmoidSampler, *observations: Observation) -> VarianceSigmoid:
    sampler = VarianceSigmoid(config, POOL, 7)
    sampler.recall(observations)
    return sampler


def keep_probability(sampler: VarianceSigmoid, prompt_id: str = "p000") -> float:
    return sampler._decide(prompt_id).keep_probability


def test_keep_probability_by_hand() -> None:
    # p = 3/8: v = 15/64; keep = 0.02 + 0.98 / (1 + e^(-40 · (15/64 - 0.05)))
    sampler = sampler_with(STEADY, binary("p000", 8, 3))
    assert keep_probability(sampler) == pytest.approx(0.02 + 0.98 / (1 + math.exp(-40 * (15 / 64 - 0.05))))
    # all wrong: v = 0; keep = 0.02 + 0.98 / (1 + e^2)
    assert keep_probability(sampler_with(STEADY, binary("p000", 8, 0))) == pytest.approx(
        0.02 + 0.98 / (1 + math.exp(2))
    )


def test_the_more_variance_the_likelier_kept_and_the_unseen_are_kept() -> None:
    kept = [keep_probability(sampler_with(STEADY, binary("p000", 8, n))) for n in range(9)]
    assert kept[:5] == sorted(set(kept[:5]))
    assert kept == kept[::-1]
    assert keep_probability(sampler_with(STEADY)) == 1.0


def test_it_is_the_variance_within_groups_and_not_the_drift_between_them() -> None:
    drifting = sampler_with(STEADY, binary("p000", 8, 0), binary("p000", 8, 8))
    constant = sampler_with(STEADY, binary("p000", 8, 0), binary("p000", 8, 0))
    assert keep_probability(drifting) == keep_probability(constant)


def test_only_the_window_counts_and_it_widens_with_the_epochs() -> None:
    config = STEADY.model_copy(update={"window": Ramp(start=2, end=4, over=2)})
    sampler = sampler_with(config, *[binary("p000", 8, n) for n in (4, 4, 4, 0, 0)])
    variances = []
    for epoch in range(4):
        assert sampler.epoch == epoch
        variances.append(sampler._decide("p000").reason)
        sampler.propose(len(POOL))
        while sampler.epoch == epoch:
            sampler.end_step()
            sampler.propose(len(POOL))
        sampler.end_step()
    assert variances == ["variance 0.00", "variance 0.08", "variance 0.12", "variance 0.12"]


def test_the_sharpness_rises_with_the_steps() -> None:
    config = STEADY.model_copy(update={"sharpness": Ramp(start=10, end=100, over=3)})
    sampler = sampler_with(config, binary("p000", 8, 0))
    seen = []
    for _ in range(5):
        seen.append((sampler.metrics()["sharpness"], keep_probability(sampler)))
        sampler.end_step()
    assert [sharpness for sharpness, _ in seen] == pytest.approx([10, 40, 70, 100, 100])
    for sharpness, keep in seen:
        assert keep == pytest.approx(0.02 + 0.98 / (1 + math.exp(0.05 * sharpness)))


def test_exploration_is_the_greater_of_the_annealed_one_and_that_of_hard_prompts() -> None:
    config = STEADY.model_copy(
        update={
            "sharpness": Ramp(start=10**6, end=10**6, over=1),  # nothing but exploration is left
            "exploration": Ramp(start=0.1, end=0.01, over=2),
            "hard_exploration": 0.05,
        }
    )
    sampler = sampler_with(config, binary("p000", 8, 0), binary("p001", 8, 8))
    floors = []
    for epoch in range(4):
        floors.append((keep_probability(sampler, "p000"), keep_probability(sampler, "p001")))
        while sampler.epoch == epoch:
            sampler.propose(len(POOL))
            sampler.end_step()
    # 0.1, 0.055, 0.01, 0.01 by epochs; 0.05 for the prompt that is always wrong.
    assert floors == [pytest.approx(pair) for pair in [(0.1, 0.1), (0.055, 0.055), (0.05, 0.01), (0.05, 0.01)]]


def test_the_threshold_rises_while_too_few_groups_are_mixed() -> None:
    config = STEADY.model_copy(update={"controller": FixedStep(step=0.03), "target_mixed": 0.5})
    sampler = sampler_with(config, *[observed(p, "mixed") for p in POOL])
    thresholds = []
    for outcome in ("all_wrong", "all_wrong", "all_wrong", "all_wrong", "mixed"):
        sampler.propose(4)
        sampler.observe([observed("p000", outcome)])
        sampler.end_step()
        thresholds.append(sampler.metrics()["threshold"])
    assert thresholds == pytest.approx([0.08, 0.11, 0.14, 0.15, 0.12])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"threshold_min": 0.2, "threshold_max": 0.1}, "threshold_min=0.2 is above threshold_max=0.1"),
        ({"exploration": Ramp(start=0.1, end=0, over=1)}, "exploration from or to 0.0"),
        ({"window": Ramp(start=0, end=5, over=1)}, "window from or to 0.0"),
    ],
    ids=["threshold", "exploration", "window"],
)
def test_a_config_that_cannot_be_is_refused(wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VarianceSigmoidSampler(**wrong)
