"""Draws are reproducible numbers of a trajectory's own, and a token is drawn as often as its probability says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.rollout.draws import choose, draw_key, random_bits, uniforms

# The generator's published outputs for the state 1234567.
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_bits_are_those_that_splitmix64_is_known_for() -> None:
    bits = random_bits(torch.full((5,), 1234567), torch.arange(5))
    assert [bit % 2**64 for bit in bits.tolist()] == PUBLISHED


def test_uniform_numbers_are_the_bits_as_a_fraction_of_their_range() -> None:
    found = uniforms(torch.full((5,), 1234567), torch.arange(5)).tolist()
    assert found == [(bits >> 11) / 2**53 for bits in PUBLISHED]


def test_seed_prompt_and_sample_each_lead_to_other_draws() -> None:
    places = [(seed, prompt, sample) for seed in range(8) for prompt in range(32) for sample in range(16)]
    keys = [draw_key(*place) for place in places]
    assert len(set(keys)) == len(places)
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert draw_key(1, 2, 3) == keys[places.index((1, 2, 3))]


def test_draws_of_neighbours_fill_the_unit_square_evenly() -> None:
    keys = torch.tensor([draw_key(0, prompt, 0) for prompt in range(20_000)])
    # Of one trajectory two positions; of one position two trajectories.
    first, second = (uniforms(keys, torch.full_like(keys, position)) for position in (7, 8))
    for x, y in ((first, second), (first[:-1], first[1:])):
        counts = torch.bincount((x * 8).long() * 8 + (y * 8).long(), minlength=64)
        expected = len(x) / 64
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(chi_square - 63) < 5 * math.sqrt(2 * 63)


@settings(max_examples=50)
@given(st.lists(st.floats(-8, 4, width=32) | st.just(-math.inf), min_size=2, max_size=9))
def test_evenly_spread_numbers_give_each_token_its_share(logits: list[float]) -> None:
    if max(logits) == -math.inf:
        return
    N = 1000
    logits_BV = torch.tensor(logits).repeat(N, 1)
    token_B, logprob_B = choose(logits_BV, (torch.arange(N, dtype=torch.float64) + 0.5) / N)
    weights = [math.exp(logit - max(logits)) for logit in logits]
    for token, weight in enumerate(weights):
        probability = weight / sum(weights)
        assert abs(int((token_B == token).sum()) - N * probability) <= 1 + 1e-3
        if weight == 0:
            assert token not in token_B
        elif token in token_B:
            assert logprob_B[token_B == token][0].item() == pytest.approx(math.log(probability), abs=1e-5)


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_range_give_no_token_of_probability_zero(number: float) -> None:
    drawn = torch.randn(500, 7, generator=torch.Generator().manual_seed(0))
    drawn[:, [0, 3, 6]] = -math.inf
    token_B, logprob_B = choose(drawn, torch.full((500,), number, dtype=torch.float64))
    assert set(token_B.tolist()) == {1 if number == 0 else 5}
    assert torch.equal(logprob_B, torch.log_softmax(drawn, -1)[torch.arange(500), token_B])


def test_a_rare_token_of_a_large_vocabulary_keeps_its_share() -> None:
    logits_V = torch.zeros(50_000)
    logits_V[49_998] = -14.0  # 1.7e-11 of the whole: float32 sums could not tell its ends apart
    probability = math.exp(-14.0) / (49_999 + math.exp(-14.0))
    start = 49_998 / (49_999 + math.exp(-14.0))
    inside_and_behind = torch.tensor([start + 0.5 * probability, start + 1.5 * probability], dtype=torch.float64)
    token_B, _ = choose(logits_V.repeat(2, 1), inside_and_behind)
    assert token_B.tolist() == [49_998, 49_999]
