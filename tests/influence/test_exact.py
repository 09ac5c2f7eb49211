"""Exact scores against gradients by hand, and what they must not depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from influence_cases import (
    MODELS,
    PAD,
    double,
    flat,
    gradient_by_hand,
    group_of,
    pack_of,
    policy_of,
    pool_of,
    validation_of,
)

from pipeline_lib.influence import layer_products
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.influence.objective import group_gradient, scored_parameters
from pipeline_lib.influence.packed import packed_dots, supports
from pipeline_lib.influence.scores import InfluenceScores
from pipeline_lib.influence.stability import spearman
from pipeline_lib.influence.validation import Directions, mean_gradient
from pipeline_lib.policy import Policy
from pipeline_lib.policy.checkpointing import checkpointing
from pipeline_lib.records import RolloutGroup

TEMPERATURE = 0.8


def ignore(_: int) -> None:
    pass


def score(policy: Policy, groups: list[RolloutGroup], tokens: int = 200) -> InfluenceScores:
    return exact_scores(
        policy,
        groups,
        validation_of(1),
        temperature=TEMPERATURE,
        tokens_per_micro_batch=tokens,
        progress=ignore,
    )


@contextmanager
def counted_forwards(policy: Policy) -> Iterator[list[int]]:
    """Rows of each forward pass."""
    rows: list[int] = []
    handle = policy.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    yield rows
    handle.remove()


def assert_same(found: InfluenceScores, expected: InfluenceScores, tolerance: float = 1e-5) -> None:
    """Prompts may stand in another order; errors are measured against the lengths, as dots cancel."""
    order = [found.prompt_ids.index(prompt_id) for prompt_id in expected.prompt_ids]
    assert found.validation_sets == expected.validation_sets
    np.testing.assert_allclose(found.norm[order], expected.norm, rtol=tolerance)
    np.testing.assert_allclose(found.cosine[order], expected.cosine, atol=tolerance)
    scale = np.abs(expected.dot).max()
    np.testing.assert_allclose(found.dot[order], expected.dot, atol=tolerance * scale)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("tokens", [1, 10_000])
def test_scores_are_those_of_gradients_by_hand(name: str, tokens: int) -> None:
    """tokens=1 takes every prompt by itself through plain autograd; 10,000 packs them all together."""
    policy = policy_of(name)
    groups = pool_of(1)
    g_ND = np.stack([gradient_by_hand(policy, group, TEMPERATURE) for group in groups])
    v_VD = np.stack(
        [
            np.mean([gradient_by_hand(policy, group, TEMPERATURE) for group in pool if group.has_signal], axis=0)
            for pool in validation_of(1).values()
        ]
    )
    found = score(policy, groups, tokens)
    assert found.prompt_ids == tuple(group.prompt_id for group in groups)
    assert found.validation_sets == ("plus", "minus")
    lengths = np.outer(np.linalg.norm(g_ND, axis=1), np.linalg.norm(v_VD, axis=1))
    np.testing.assert_allclose(found.norm, np.linalg.norm(g_ND, axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.dot, g_ND @ v_VD.T, atol=1e-5 * lengths.max())
    with_signal = [group.has_signal for group in groups]
    np.testing.assert_allclose(
        found.cosine[with_signal], (g_ND @ v_VD.T / np.where(lengths > 0, lengths, 1))[with_signal], atol=1e-5
    )


def test_groups_without_signal_score_zero_and_are_never_run() -> None:
    policy = policy_of("llama")
    rng = np.random.default_rng(2)
    flat_rewards: list[list[float | None]] = [[1.0] * 4, [0.0] * 4, [None] * 4, [1.0, None], []]
    dull = [group_of(f"dull-{i}", rng, rewards) for i, rewards in enumerate(flat_rewards)]
    mixed = group_of("mixed", rng, [1.0, 0.0, None])
    with counted_forwards(policy) as validation_alone:
        score(policy, [])
    with counted_forwards(policy) as rows:
        scores = score(policy, [*dull, mixed], tokens=10_000)
    assert rows == [*validation_alone, 1], "the two graded trajectories of the mixed group in one row, and no other"
    assert (scores.dot[:5] == 0).all() and (scores.cosine[:5] == 0).all() and (scores.norm[:5] == 0).all()
    assert scores.norm[5] > 0


@settings(max_examples=12)
@given(st.permutations(range(6)), st.integers(1, 400), st.sampled_from(["llama-tied", "qwen2"]))
def test_neither_order_nor_micro_batches_matter(order: list[int], tokens: int, name: str) -> None:
    policy = policy_of(name)
    groups = pool_of(3)
    assert_same(score(policy, [groups[i] for i in order], tokens), score(policy, groups))


@settings(max_examples=6)
@given(
    groups=st.lists(
        st.tuples(
            st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=1, max_size=6),
            st.integers(1, 12),
            st.integers(1, 9),
        ),
        min_size=1,
        max_size=4,
    ),
    tokens=st.sampled_from([1, 40, 10_000]),
    price=st.sampled_from([0.0, 25.0, 1e9]),
    name=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2**31),
)
def test_for_any_shape(
    groups: list[tuple[list[float | None], int, int]], tokens: int, price: float, name: str, seed: int
) -> None:
    """Formed or contracted, packed or one by one, rows shared or not: against float64 autograd of the formula."""
    rng = np.random.default_rng(seed)
    policy = policy_of(name)
    pool = [group_of(f"{i:02d}", rng, *shape) for i, shape in enumerate(groups)]
    g_ND = np.stack([gradient_by_hand(policy, group, TEMPERATURE) for group in pool])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_products, "PASS_PRICE", price)
        found = score(policy, pool, tokens)
        parameters = scored_parameters(policy.model)
        v_VD = [
            flat(mean_gradient(policy, groups, parameters, temperature=TEMPERATURE, tokens_per_micro_batch=10_000))
            for groups in validation_of(1).values()
        ]
    lengths = np.linalg.norm(g_ND, axis=1)
    np.testing.assert_allclose(found.norm, lengths, rtol=1e-5, atol=1e-12)
    assert (np.abs(found.dot - g_ND @ np.stack(v_VD).T) <= 1e-5 * np.outer(lengths, np.linalg.norm(v_VD, axis=1))).all()


def test_one_token_completions_and_unequal_lengths() -> None:
    policy = policy_of("llama-tied")
    rng = np.random.default_rng(4)
    groups = [
        group_of("one", rng, [1.0, 0.0], max_prompt=1, max_completion=1),
        group_of("long", rng, [1.0, 0.0, 0.0], max_prompt=20, max_completion=20),
        group_of("short", rng, [0.0, 1.0, 1.0], max_prompt=2, max_completion=2),
    ]
    packed = score(policy, groups, 10_000)
    assert_same(packed, score(policy, groups, 1))
    expected = [np.linalg.norm(gradient_by_hand(policy, group, TEMPERATURE)) for group in groups]
    np.testing.assert_allclose(packed.norm, expected, rtol=1e-5)


def test_a_pad_token_within_a_prompt_has_no_embedding_gradient() -> None:
    """As torch's embedding has none for its padding_idx."""
    policy = policy_of("llama")
    group = group_of("p", np.random.default_rng(13), [1.0, 0.0])
    group = dataclasses.replace(
        group,
        trajectories=tuple(dataclasses.replace(t, prompt_token_ids=(5, PAD, 7)) for t in group.trajectories),
    )
    expected = np.linalg.norm(gradient_by_hand(policy, group, TEMPERATURE))
    np.testing.assert_allclose(score(policy, [group], 10_000).norm, [expected], rtol=1e-5)


def test_a_model_with_layers_of_another_kind_takes_the_plain_way() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.gain * x

    policy = policy_of("llama")
    groups = pool_of(5)
    assert supports(policy.model, list(policy.model.parameters()))
    policy.model.lm_head = torch.nn.Sequential(policy.model.lm_head, Scale())
    assert not supports(policy.model, list(policy.model.parameters()))
    with counted_forwards(policy) as rows:
        scores = score(policy, groups, 10_000)
    assert len(rows) == 2 + sum(group.has_signal for group in groups)
    expected = [np.linalg.norm(gradient_by_hand(policy, group, TEMPERATURE)) for group in groups]
    np.testing.assert_allclose(scores.norm, expected, rtol=1e-5)


def test_many_prompts_share_one_forward_pass() -> None:
    policy = policy_of("llama")
    groups = pool_of(6, n=10)
    with counted_forwards(policy) as rows:
        score(policy, groups, 10_000)
    assert len(rows) == 2 + 1


def test_the_policy_is_left_as_it_was() -> None:
    policy = policy_of("qwen2")
    before = {name: p.clone() for name, p in policy.model.named_parameters()}
    for tokens in (1, 10_000):
        score(policy, pool_of(7), tokens)
        assert not any(p.requires_grad for p in policy.model.parameters())
        assert all(p.grad is None for p in policy.model.parameters())
        assert not any(module._forward_hooks for module in policy.model.modules())
    assert all(torch.equal(p, before[name]) for name, p in policy.model.named_parameters())


def test_progress_adds_up_to_the_prompts_with_signal() -> None:
    done: list[int] = []
    groups = pool_of(8, n=10)
    exact_scores(
        policy_of("llama"),
        groups,
        validation_of(1),
        temperature=1.0,
        tokens_per_micro_batch=100,
        progress=done.append,
    )
    assert sum(done) == sum(group.has_signal for group in groups)
    assert len(done) > 1


@pytest.mark.parametrize("name", ["llama-tied", "qwen2"])
def test_bfloat16_parameters_keep_the_order_of_the_scores(name: str) -> None:
    """Beside float32 with the same rounded weights: what is compared is the arithmetic."""
    policy = policy_of(name)
    groups = [group for group in pool_of(9, n=160) if group.has_signal]
    policy.model.to(torch.bfloat16).float()
    expected = score(policy, groups, 2000)
    policy.model.to(torch.bfloat16)
    low = dataclasses.replace(policy, dtype=torch.bfloat16)
    for tokens in (1, 2000):
        found = score(low, groups, tokens)
        for j in range(2):
            assert spearman(found.cosine[:, j], expected.cosine[:, j]) > 0.999


def test_float32_parameters_under_bfloat16_autocast() -> None:
    policy = policy_of("qwen2")
    groups = pool_of(10)
    mixed = dataclasses.replace(policy, dtype=torch.bfloat16)
    for tokens in (1, 10_000):
        assert_same(score(mixed, groups, tokens), score(policy, groups), tolerance=0.1)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "qwen3-tied"])
def test_gradient_checkpointing_changes_nothing(name: str) -> None:
    policy = policy_of(name)
    parameters = scored_parameters(policy.model)
    directions = Directions(("a", "b"), [torch.randn(2, p.numel()) for p in parameters])
    groups = [group for group in pool_of(14, n=8) if group.has_signal]
    pack = pack_of(policy, *groups)
    runs = [0, 0]
    handle = policy.model.model.layers[0].mlp.register_forward_hook(
        lambda *_: runs.__setitem__(wanted, runs[wanted] + 1)
    )
    products, gradients = [], []
    for wanted in (0, 1):
        with checkpointing(policy.model, bool(wanted), reentrant=True):
            products.append(packed_dots(policy, pack, parameters, directions, temperature=TEMPERATURE))
            gradients.append(group_gradient(policy, groups[0], temperature=TEMPERATURE, tokens_per_micro_batch=9999))
    handle.remove()
    assert runs == [2, 4], "a checkpointed block runs twice"
    for part, expected_part in zip(*gradients, strict=True):
        torch.testing.assert_close(part, expected_part)
    for found, expected in zip(products[1], products[0], strict=True):
        torch.testing.assert_close(found, expected)
    assert not any(module.training for module in policy.model.modules())
    assert not policy.model.is_gradient_checkpointing
    assert not policy.model.get_input_embeddings()._forward_hooks


def test_adapters_alone_are_scored_where_the_policy_carries_them() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    policy = policy_of("llama")
    wrapped = peft.get_peft_model(policy.model, peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:  # zero at first
                parameter.copy_(0.1 * torch.randn_like(parameter))
    policy = dataclasses.replace(policy, model=wrapped.base_model.model.requires_grad_(False))
    parameters = scored_parameters(policy.model)
    assert len(parameters) == 2 * 2 * 2, "A and B of two matrices in two blocks"
    assert supports(policy.model, parameters)
    groups = pool_of(15)
    assert_same(score(policy, groups, 10_000), score(policy, groups, 1))
    directions = Directions(("a", "b"), [torch.randn(2, p.numel()) for p in parameters])
    pack = pack_of(policy, *(group for group in groups if group.has_signal))
    plain = packed_dots(policy, pack, parameters, directions, temperature=1.0)
    with checkpointing(policy.model, True, reentrant=True):
        torch.testing.assert_close(packed_dots(policy, pack, parameters, directions, temperature=1.0), plain)


def test_a_validation_set_without_signal_is_named_with_the_remedy() -> None:
    rng = np.random.default_rng(11)
    validation = {
        "plus": pool_of(1),
        "minus": [group_of("a", rng, [1.0, 1.0]), group_of("b", rng, [0.0]), group_of("c", rng, [0.0, 0.0])],
    }
    policy = policy_of("llama")
    with (
        counted_forwards(policy) as rows,
        pytest.raises(ValueError, match=r"'minus': none of its 3 groups .*1 all_right, 2 all_wrong.*samples"),
    ):
        exact_scores(policy, pool_of(1), validation, temperature=1.0, tokens_per_micro_batch=100, progress=ignore)
    assert rows == []


def test_a_gradient_that_is_not_finite_names_the_prompt() -> None:
    policy = policy_of("llama")
    groups = pool_of(12)
    broken = dataclasses.replace(
        groups[0],
        trajectories=tuple(
            dataclasses.replace(t, behaviour_logprobs=(-1000.0,) * len(t.completion_token_ids))
            for t in groups[0].trajectories
        ),
    )
    with pytest.raises(ValueError, match="prompt 12-00: its gradient has length"):
        score(policy, [broken, *groups[1:]])


def test_double_is_the_same_policy() -> None:
    """The reference of these tests itself."""
    policy = policy_of("qwen3-tied")
    ids = torch.arange(2, 12)[None]
    torch.testing.assert_close(double(policy)(ids).logits.float(), policy.model(ids).logits)
