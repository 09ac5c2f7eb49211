"""Padding, masks from lengths, and micro-batches by padded size."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.policy import collate, micro_batches
from pipeline_lib.records import Trajectory

PAD = 2  # also the stop token


def trajectory(prompt: tuple[int, ...], completion: tuple[int, ...]) -> Trajectory:
    logprobs = tuple(-float(t + 1) for t in range(len(completion)))
    return Trajectory("p", 0, prompt, completion, logprobs, "stop", "", 1.0, True, "ok")


def test_completions_end_in_the_last_column_and_masks_keep_a_stop_token_equal_to_pad() -> None:
    made = [trajectory((1, 5, 6), (7, PAD)), trajectory((1,), (8, 9, 8, PAD))]
    batch = collate(made, PAD, torch.device("cpu"))
    assert batch.input_ids_BS.tolist() == [[1, 5, 6, 7, PAD], [1, 8, 9, 8, PAD]]
    assert batch.completion_mask_BT.tolist() == [[False, False, True, True], [True] * 4]
    assert batch.completion_ids_BT[batch.completion_mask_BT].tolist() == [7, PAD, 8, 9, 8, PAD]
    assert batch.behaviour_logprobs_BT.tolist() == [[0, 0, -1, -2], [-1, -2, -3, -4]]


def test_positions_count_from_the_first_real_token() -> None:
    made = [trajectory((1,), (7, PAD)), trajectory((1, 5, 6), (7, PAD))]
    batch = collate(made, PAD, torch.device("cpu"))
    assert batch.attention_mask_BS.tolist() == [[0, 0, 1, 1, 1], [1] * 5]
    assert batch.position_ids_BS.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_micro_batches_cover_every_sequence_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(micro_batches(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
    longest_first = [lengths[i] for batch in batches for i in batch]
    assert longest_first == sorted(lengths, reverse=True)
