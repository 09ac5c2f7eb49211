"""A batch that rows leave and join samples the same completions as any other, from the right distribution."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from rollout_cases import PROMPTS, as_group, policy_of, tiny_policy
from transformers import (
    Gemma2ForCausalLM,
    Lfm2ForCausalLM,
    LlamaForCausalLM,
    MambaForCausalLM,
    MistralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3MoeForCausalLM,
)

from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.rollout import SamplingParams, TransformersEngine

PARAMS = SamplingParams(n=5, temperature=1.0, max_tokens=12, batch_size=7)


@dataclass
class Runs:
    """What the policy was run on: rows and tokens of each call."""

    shapes: list[tuple[int, int]]

    @contextmanager
    def of(self, policy: Policy) -> Iterator[None]:
        def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            self.shapes.append(tuple(kwargs["input_ids"].shape))

        handle = policy.model.register_forward_pre_hook(note, with_kwargs=True)
        yield
        handle.remove()


@pytest.mark.parametrize("batch_size", [1, 3, 5, 12, 100])
def test_what_is_sampled_does_not_depend_on_the_batch_size(batch_size: int) -> None:
    engine = TransformersEngine(tiny_policy())
    expected = [[c.token_ids for c in group] for group in engine.generate(PROMPTS, PARAMS, seed=5)]
    found = engine.generate(PROMPTS, replace(PARAMS, batch_size=batch_size), seed=5)
    assert [[c.token_ids for c in group] for group in found] == expected


def test_what_is_sampled_does_not_depend_on_what_else_is_asked_for() -> None:
    engine = TransformersEngine(tiny_policy())
    tokens = [[c.token_ids for c in group] for group in engine.generate(PROMPTS, PARAMS, seed=5)]
    fewer = engine.generate(PROMPTS[:2], replace(PARAMS, n=3), seed=5)
    assert [[c.token_ids for c in group] for group in fewer] == [group[:3] for group in tokens[:2]]
    shorter = engine.generate(PROMPTS, replace(PARAMS, max_tokens=4), seed=5)
    assert [[c.token_ids for c in group] for group in shorter] == [[ids[:4] for ids in group] for group in tokens]


def test_ended_rows_are_not_run_on_and_prompts_take_their_place() -> None:
    policy = tiny_policy(eos=(2, 4, 5, 6, 7, 8))
    params = SamplingParams(n=4, temperature=1.0, max_tokens=40, batch_size=16)
    prompts = PROMPTS * 8
    runs = Runs([])
    with runs.of(policy):
        completions = [c for g in TransformersEngine(policy).generate(prompts, params, seed=0) for c in g]
    steps = [rows for rows, tokens in runs.shapes if tokens == 1]
    assert max(steps) == 16
    needed = sum(len(c.token_ids) - 1 for c in completions)
    # A batch is turned over when an eighth has ended, and a prompt joins where four rows are free.
    assert needed <= sum(steps) < 1.2 * needed
    assert sum(rows for rows, tokens in runs.shapes if tokens > 1) == len(prompts)
    longest = sorted((len(c.token_ids) for c in completions), reverse=True)
    held = sum(longest[start] for start in range(0, len(longest), 16)) * 16
    assert sum(steps) < 0.7 * held


def test_nothing_is_run_once_all_have_ended() -> None:
    policy, runs = tiny_policy(), Runs([])
    with runs.of(policy):
        TransformersEngine(policy).generate(PROMPTS, replace(PARAMS, max_tokens=1), seed=0)
    assert all(tokens > 1 for _, tokens in runs.shapes)


def test_two_tokens_come_as_often_as_the_chain_rule_says_where_rows_join_all_the_time() -> None:
    policy, prompt = tiny_policy(), PROMPTS[1]
    params = SamplingParams(n=3, temperature=1.2, max_tokens=2, batch_size=50)
    groups = TransformersEngine(policy).generate([prompt, PROMPTS[2]] * 1500, params, seed=2)
    completions = [c.token_ids for group in groups[::2] for c in group]

    def distribution(tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits_V = policy.model(torch.tensor([tokens])).logits[0, -1] / 1.2
        logits_V[policy.pad_token_id] = float("-inf")
        return torch.softmax(logits_V, -1)

    first_V = distribution(prompt)
    V = len(first_V)
    pairs_VV = torch.stack([first_V[token] * distribution([*prompt, token]) for token in range(V)])
    pairs_VV[2] = 0.0
    pairs_VV[2, 2] = first_V[2]  # ended by its first token
    expected = pairs_VV.flatten() * len(completions)
    observed = torch.bincount(torch.tensor([ids[0] * V + ids[-1] for ids in completions]), minlength=V * V)
    common = expected >= 5
    chi_square = ((observed - expected)[common] ** 2 / expected[common]).sum().item()
    freedom = int(common.sum()) - 1
    assert freedom >= 30
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


FAMILIES: dict[str, tuple[type, dict[str, Any]]] = {
    "Llama, one key head": (LlamaForCausalLM, {"num_key_value_heads": 1}),
    "Llama, eager attention": (LlamaForCausalLM, {"attn_implementation": "eager"}),
    "Qwen2": (Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "Qwen2, window in its upper layer": (
        Qwen2ForCausalLM,
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "Mistral, sliding window": (MistralForCausalLM, {"sliding_window": 5, "head_dim": 8}),
    "Gemma2, both kinds of layers, capped logits": (
        Gemma2ForCausalLM,
        {"sliding_window": 5, "head_dim": 8, "attn_implementation": "eager"},
    ),
    "Qwen3 with experts": (
        Qwen3MoeForCausalLM,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_exact_in_every_family(family: str) -> None:
    model_class, config = FAMILIES[family]
    assert largest_gap(policy_of(model_class, **config)) < 1e-4


def test_logprobs_under_autocast_are_those_of_a_pass_under_autocast() -> None:
    exact, rounded = (policy_of(Qwen2ForCausalLM, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    assert largest_gap(rounded) < 0.2
    params = replace(PARAMS, max_tokens=1)
    sampled = [
        [c.logprobs for group in TransformersEngine(p).generate(PROMPTS, params, seed=0) for c in group]
        for p in (exact, rounded)
    ]
    assert sampled[0] != sampled[1]


def largest_gap(policy: Policy) -> float:
    """Nats between what is recorded and a teacher-forced pass, over batches that rows leave and join."""
    params = replace(PARAMS, max_tokens=16)
    groups = TransformersEngine(policy).generate(PROMPTS, params, seed=0)
    trajectories = [t for p, g in zip(PROMPTS, groups, strict=True) for t in as_group(p, g).trajectories]
    assert max(len(t.completion_token_ids) for t in trajectories) > 6
    batch = collate(trajectories, policy.pad_token_id, policy.device)
    with torch.no_grad():
        expected_BT = token_logprobs(policy, batch, temperature=params.temperature).logprobs_BT
    return float((batch.behaviour_logprobs_BT - expected_BT).abs().max())


@pytest.mark.parametrize(
    ("model_class", "config", "kind"),
    [
        (MambaForCausalLM, {"state_size": 4}, "mamba"),
        (Lfm2ForCausalLM, {"layer_types": ["conv", "full_attention"]}, "lfm2"),
    ],
)
def test_a_model_that_keeps_another_kind_of_state_is_refused(
    model_class: type, config: dict[str, Any], kind: str
) -> None:
    policy = policy_of(model_class, **config)
    with pytest.raises(ValueError, match=f"model_type={kind}: .* set generation.engine: vllm"):
        TransformersEngine(policy)
