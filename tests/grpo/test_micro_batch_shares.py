"""Every process has as many micro-batches as the others, whatever the filters have left of the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from grpo_cases import CPU, trajectory
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.update import _own_micro_batches


def process(rank: int, size: int) -> Any:
    policy = SimpleNamespace(pad_token_id=0, device=CPU)
    return SimpleNamespace(ranks=Ranks(rank, size), trained=SimpleNamespace(policy=policy))


@given(
    lengths=st.lists(st.integers(1, 12), max_size=20), size=st.integers(1, 5), max_tokens=st.sampled_from([1, 9, 30])
)
def test_shares_are_equally_many_and_count_each_trajectory_once(lengths: list[int], size: int, max_tokens: int) -> None:
    taking_part = [(trajectory(f"p{i}", 0, reward=1.0, tokens=[5] * n), float(i)) for i, n in enumerate(lengths)]
    shares = [_own_micro_batches(process(rank, size), taking_part, max_tokens) for rank in range(size)]
    assert len({len(share) for share in shares}) == 1
    counted = [a for share in shares for micro in share if micro.counts for a in micro.advantages_B.tolist()]
    assert sorted(counted) == list(range(len(lengths)))
    assert all(len(micro.advantages_B) > 0 for share in shares for micro in share)
