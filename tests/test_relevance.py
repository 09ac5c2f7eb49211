"""Likeness of prompts in the policy's states: against plain loops, one prompt at a time, and on what it should tell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib import relevance
from pipeline_lib.config import ChainSource
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.prompts.chains import read_chains
from pipeline_lib.records import Prompt
from pipeline_lib.relevance import (
    LEADING,
    RELEVANCE_SCHEMA,
    STATES_SCHEMA,
    Background,
    Kind,
    States,
    directions,
    prompt_states,
    relevances,
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32)


def chains(kind: str, lengths: list[int], count: int, seed: int) -> list[Prompt]:
    source = ChainSource(kinds=[kind], lengths=lengths, count=count, seed=seed)  # type: ignore[list-item]
    return [prompt for _, prompt in read_chains(source)]


def read(policy: Policy, pool: list[Prompt], validation: dict[str, list[Prompt]]) -> tuple[pa.Table, pa.Table]:
    pieces = relevances(policy, pool, validation, tokens_per_batch=512, progress=lambda _: None)
    compared, states = map(pa.concat_tables, zip(*pieces, strict=True))
    return compared, states


def measured(policy: Policy, pool: list[Prompt], validation: dict[str, list[Prompt]]) -> dict[str, np.ndarray]:
    """By set, in the order of the pool."""
    table, _ = read(policy, pool, validation)
    assert table.schema == RELEVANCE_SCHEMA and len(table) == len(pool) * len(validation)
    found = {(row["validation_set"], row["prompt_id"]): row["relevance"] for row in table.to_pylist()}
    return {name: np.array([found[name, prompt.prompt_id] for prompt in pool]) for name in validation}


@pytest.mark.parametrize("tokens_per_batch", [1, 60, 10_000])
def test_a_state_is_the_mean_over_a_prompts_tokens_in_the_middle_of_the_policy(
    policy: Policy, tokens_per_batch: int
) -> None:
    prompts = chains("minus", [1, 3, 6], 9, 1)
    states = prompt_states(policy, prompts, tokens_per_batch=tokens_per_batch)
    for prompt, state_D, n_tokens in zip(prompts, states.mean_ND, states.n_tokens_N, strict=True):
        ids = torch.tensor([policy.encode(prompt.messages)])
        with torch.no_grad():
            layers = policy.model(input_ids=ids, output_hidden_states=True).hidden_states
        assert len(layers) == 4, "embeddings and three blocks"
        np.testing.assert_allclose(state_D, layers[1][0].mean(dim=0).numpy(), atol=2e-5)
        assert n_tokens == ids.shape[1]


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_cosines_to_a_kind_are_means_of_cosines_with_its_prompts(M: int, N: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    set_MD = rng.standard_normal((M, 5))
    pool_ND = rng.standard_normal((N, 5))

    def unit(states: np.ndarray) -> np.ndarray:
        return states / np.linalg.norm(states, axis=1, keepdims=True)

    kind = Kind.of(unit(set_MD))
    plain_NM = unit(pool_ND) @ unit(set_MD).T
    np.testing.assert_allclose(kind.cosine(unit(pool_ND)), plain_NM.mean(axis=1), atol=1e-12)
    own_MM = unit(set_MD) @ unit(set_MD).T
    own_M = np.array([np.delete(own_MM[m], m).mean() for m in range(M)])
    if own_M.mean() > 2 * own_M.std(ddof=1) / np.sqrt(M):
        assert kind.own == pytest.approx(np.median(own_M))
    else:
        assert np.isnan(kind.own)


def test_what_the_whole_pool_shares_is_no_likeness() -> None:
    """Real models' states lie in one narrow cone, and a few dimensions outweigh all others."""
    rng = np.random.default_rng(0)
    first_ND, second_ND = rng.standard_normal((2, 50, 8))
    first_ND[:, :2] += 4
    pool_ND = np.concatenate([first_ND, second_ND])
    n_tokens_N = rng.integers(5, 50, 100).astype(float)

    def directed(states_ND: np.ndarray) -> np.ndarray:
        states = States(states_ND, n_tokens_N)
        return directions(Background.of(states).scaled(states))

    directions_ND = directed(pool_ND)
    cosine_N = Kind.of(directions_ND[:20]).cosine(directions_ND)
    assert cosine_N[20:50].mean() > 0.15 > -0.15 > cosine_N[50:].mean()
    np.testing.assert_allclose(directed(pool_ND * np.geomspace(1e-3, 1e3, 8) + 1e4), directions_ND, atol=1e-6)
    with_length_ND = pool_ND + np.outer(n_tokens_N, rng.standard_normal(8))
    np.testing.assert_allclose(directed(with_length_ND), directions_ND, atol=1e-6)
    assert (directed(np.ones((100, 2))) == 0).all()
    alike = States(pool_ND, np.full(100, 7.0))
    assert np.isfinite(Background.of(alike).scaled(alike)).all()


def test_relevance_is_a_share_of_the_sets_own_and_never_more_than_all_of_it() -> None:
    kind = Kind(np.ones(2), own=0.4)
    np.testing.assert_allclose(kind.relevance(np.array([-0.3, 0.0, 0.1, 0.4, 0.9])), [0, 0, 0.25, 1, 1])
    assert Kind.of(np.array([[0.6, 0.8]])).own == 1.0
    unlike = Kind.of(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    assert (unlike.relevance(np.array([-0.2, 0.2])) == 1).all()


def test_prompts_of_the_kind_asked_for_are_told_from_the_others_whatever_their_length(policy: Policy) -> None:
    asked, short, other, short_other = (
        chains(kind, lengths, 30, 1) for kind in ("minus", "max") for lengths in ([4, 5, 6], [2, 3])
    )
    held_out = chains("minus", [4, 5, 6], 20, 9)
    found = measured(policy, [*asked, *short, *other, *short_other], {"minus": held_out})["minus"]
    assert found[:30].mean() > 0.8 and found[30:60].mean() > 0.5
    assert found[60:].mean() < 0.1


def test_where_the_pool_is_what_is_asked_for_all_of_it_is(policy: Policy) -> None:
    prompts = chains("minus", [3], 90, 1)
    found = measured(policy, prompts[:60], {"minus": prompts[60:]})["minus"]
    assert found.mean() > 0.7


def test_a_pool_read_piece_by_piece_is_compared_alike(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first SAMPLE prompts by id say what is usual, whatever the order in which the pool comes."""
    monkeypatch.setattr(relevance, "SAMPLE", 16)
    pool = [*chains("minus", [3, 4], 20, 1), *chains("max", [3, 4], 20, 1)]
    validation = {"minus": chains("minus", [3, 4], 10, 9), "max": chains("max", [3, 4], 10, 9)}
    found = measured(policy, pool, validation)
    again = measured(policy, pool[::-1], validation)
    for name, relevance_N in found.items():
        np.testing.assert_allclose(again[name][::-1], relevance_N, atol=1e-5)
        own = slice(0, 20) if name == "minus" else slice(20, 40)
        assert relevance_N[own].mean() > 2 * np.delete(relevance_N, np.r_[own]).mean()


def test_kept_states_are_as_far_from_each_other_as_the_scaled_ones(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as they have all of the directions that there are; the first ones hold most of it."""
    monkeypatch.setattr(relevance, "SAMPLE", 40)
    pool = [*chains("minus", [2, 3, 4], 30, 1), *chains("max", [2, 3, 4], 30, 1)]
    by_id = sorted(pool, key=lambda prompt: prompt.prompt_id)
    _, states = read(policy, pool, {"minus": chains("minus", [3], 5, 9)})
    assert states.schema == STATES_SCHEMA
    assert states["prompt_id"].to_pylist() == [prompt.prompt_id for prompt in by_id]
    assert states["n_tokens"].to_pylist() == [len(policy.encode(prompt.messages)) for prompt in by_id]
    kept_NL = np.array(states["state"].to_pylist())
    assert kept_NL.shape[1] == min(LEADING, 40)
    background = Background.of(prompt_states(policy, by_id[:40], tokens_per_batch=512))
    scaled_ND = background.scaled(prompt_states(policy, by_id, tokens_per_batch=512))
    np.testing.assert_allclose(kept_NL[:40] @ kept_NL[:40].T, scaled_ND[:40] @ scaled_ND[:40].T, atol=1e-2)
    # Of the prompts that the directions are not of: never more, and most.
    assert (np.square(kept_NL[40:]).sum(axis=1) <= np.square(scaled_ND[40:]).sum(axis=1) * 1.001).all()
    assert np.square(kept_NL[40:]).sum() > 0.8 * np.square(scaled_ND[40:]).sum()
    assert (np.diff(np.square(kept_NL[:40]).sum(axis=0)) < 1e-3).all()
