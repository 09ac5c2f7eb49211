"""Round sizes: ceil(β · missing / (1 - zvr)), clamped, and never infinite."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.config import Refill
from pipeline_lib.sampling import RoundSizer


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


def test_sizes_are_rounded_up_to_the_divisor_within_the_ceiling() -> None:
    sizer = RoundSizer(Refill(oversample=1.0, min_prompts=1, max_prompts=30), prompts_per_step=20, divisor=8)
    assert [sizer.next_round(missing) for missing in (1, 8, 9, 24, 25, 1000)] == [8, 8, 16, 24, 24, 24]


def test_a_ceiling_below_the_divisor_gives_way() -> None:
    sizer = RoundSizer(Refill(max_prompts=3), prompts_per_step=20, divisor=8)
    assert sizer.next_round(5) == 8


@given(
    missing=st.integers(1, 500),
    divisor=st.integers(1, 16),
    shares=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1)), max_size=5),
    min_prompts=st.integers(1, 100),
    max_prompts=st.integers(1, 1000) | st.none(),
)
def test_sizes_are_multiples_and_bounded_whatever_was_seen(
    missing: int, divisor: int, shares: list[tuple[int, float]], min_prompts: int, max_prompts: int | None
) -> None:
    refill = Refill(min_prompts=min_prompts, max_prompts=max_prompts)
    sizer = RoundSizer(refill, prompts_per_step=64, divisor=divisor)
    for n_groups, share in shares:
        sizer.observe(n_groups, round(share * n_groups))
    size, plain = sizer.next_round(missing), RoundSizer(refill, prompts_per_step=64)
    plain.zero_variance_share = sizer.zero_variance_share
    assert size > 0 and size % divisor == 0
    assert size <= max(divisor, max_prompts or 96)
    assert abs(size - plain.next_round(missing)) < divisor
