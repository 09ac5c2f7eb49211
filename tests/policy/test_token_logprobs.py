"""Log-probs chunk by chunk are those of whole logits, and their memory does not grow with the vocabulary's share."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from pipeline_lib.policy import Policy, TokenBatch, collate, load_policy, logprobs, token_logprobs
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.policy.policy import _has_plain_head
from pipeline_lib.records import Trajectory

V = 97


def policy_of(seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, eos_token_id=2
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():  # logits far from uniform
        parameter.data *= 4
    return Policy(model, None, (2,), 0, torch.float32, plain_head=True)  # type: ignore[arg-type]


def batch_of(lengths: list[tuple[int, int]], seed: int = 0) -> TokenBatch:
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, V, (n,), generator=generator).tolist())

    trajectories = [
        Trajectory(f"p{i}", 0, draw(p), draw(c), (-1.0,) * c, "stop", "", 1.0, True, "ok")
        for i, (p, c) in enumerate(lengths)
    ]
    return collate(trajectories, 0, torch.device("cpu"))


def everything(policy: Policy, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probs, entropies, and the gradient of a weighted sum of both."""
    policy.model.zero_grad()
    found = token_logprobs(policy, batch, temperature=0.7, entropy="gradient")
    assert found.entropy_BT is not None
    weights_BT = torch.linspace(-1, 1, found.logprobs_BT.numel()).reshape(found.logprobs_BT.shape)
    (weights_BT * found.logprobs_BT + 0.3 * weights_BT**2 * found.entropy_BT).sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    return found.logprobs_BT.detach(), found.entropy_BT.detach(), gradient


@settings(max_examples=15)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=5),
    tokens_at_once=st.integers(1, 12),
)
def test_chunks_change_neither_values_nor_gradients(lengths: list[tuple[int, int]], tokens_at_once: int) -> None:
    policy, batch = policy_of(), batch_of(lengths)
    whole = everything(replace(policy, plain_head=False), batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logprobs, "LOGITS_AT_ONCE", tokens_at_once * V)
        chunked = everything(policy, batch)
    for found, expected in zip(chunked, whole, strict=True):
        assert float((found - expected).norm()) < 1e-5 * float(expected.norm())
    mask_BT = batch.completion_mask_BT
    assert (whole[0][~mask_BT] == 0).all() and (whole[1][~mask_BT] == 0).all()
    assert (whole[1][mask_BT] > 0).all()


def test_entropy_is_that_of_the_distribution_sampled_from() -> None:
    policy, batch = policy_of(), batch_of([(3, 4)])
    logits_TV = policy.model(batch.input_ids_BS).logits[0, 2:6].double() / 0.7
    distribution = torch.distributions.Categorical(logits=logits_TV[:, 1:])  # 0 is the pad, never sampled
    found = token_logprobs(policy, batch, temperature=0.7, entropy="value")
    assert found.entropy_BT is not None and not found.entropy_BT.requires_grad
    torch.testing.assert_close(found.entropy_BT[0].double(), distribution.entropy(), rtol=1e-5, atol=1e-5)


def test_no_tensor_of_all_tokens_by_vocabulary_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by the sizes that autograd keeps for the backward pass."""
    policy, batch = policy_of(), batch_of([(2, 40)] * 4)
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", 20 * V)

    def largest_saved(policy: Policy) -> int:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            token_logprobs(policy, batch, temperature=1.0, entropy="gradient").logprobs_BT.sum().backward()
        return max(sizes)

    assert largest_saved(replace(policy, plain_head=False)) >= 160 * V
    assert largest_saved(policy) < 160 * V


def test_a_head_that_scales_or_caps_its_logits_is_seen() -> None:
    small = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "pad_token_id": 0, "head_dim": 8}
    torch.manual_seed(0)
    assert _has_plain_head(LlamaForCausalLM(LlamaConfig(**small, num_attention_heads=4)).eval())
    assert not _has_plain_head(CohereForCausalLM(CohereConfig(**small, **heads, logit_scale=0.0625)).eval())
    assert not _has_plain_head(Gemma2ForCausalLM(Gemma2Config(**small, **heads, final_logit_softcapping=30.0)).eval())
    assert load_policy(BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32, trainable=True).plain_head
