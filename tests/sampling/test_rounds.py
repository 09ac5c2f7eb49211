"""Round sizes: ceil(β · missing / (1 - zvr)), clamped, and never infinite."""

from __future__ import annotations

from pipeline_lib.config import Refill, UniformSampler
from pipeline_lib.sampling import RoundSizer, make_sampler


def test_hand_worked_round_sizes() -> None:
    sizer = RoundSizer(Refill(oversample=1.25, min_prompts=4, smoothing=1.0), prompts_per_step=32)
    assert sizer.next_round(8) == 10  # 1.25 · 8 / 1
    sizer.observe(n_groups=20, n_with_signal=10)
    assert sizer.next_round(8) == 20  # 1.25 · 8 / 0.5
    assert sizer.next_round(1) == 4  # the floor: 2.5 would do
    assert sizer.next_round(32) == 48  # the ceiling, 1.5 · 32: 80 are wanted


def test_all_zero_variance_does_not_divide_by_zero() -> None:
    sizer = RoundSizer(Refill(smoothing=1.0, max_prompts=1000), prompts_per_step=32)
    sizer.observe(n_groups=64, n_with_signal=0)
    assert sizer.zero_variance_share == 0.95
    assert sizer.next_round(8) == 200


def test_the_share_is_a_moving_average() -> None:
    sizer = RoundSizer(Refill(smoothing=0.5), prompts_per_step=32)
    sizer.observe(n_groups=10, n_with_signal=6)
    assert sizer.zero_variance_share == 0.2
    sizer.observe(n_groups=0, n_with_signal=0)
    assert sizer.zero_variance_share == 0.2


def test_uniform_visits_every_prompt_once_an_epoch() -> None:
    pool = [f"p{i}" for i in range(10)]
    sampler = make_sampler(UniformSampler(), pool, [], seed=3)
    epochs = []
    for _ in range(2):
        seen = []
        for _ in range(5):
            seen += [d.prompt_id for d in sampler.propose(2)]
            sampler.end_step()
        epochs.append(seen)
    assert sorted(epochs[0]) == sorted(epochs[1]) == pool
    assert epochs[0] != epochs[1]
